// The plots, one time axis and one cursor for all of them.

import { byId, setText } from "./dom.js";
import { clock, duration, percent, count, rate, seconds } from "./format.js";
import { Plot } from "./plot.js";

const LEAST_SPAN_S = 60;

const plain = (format) => (value) => [format(value), ""];

const PLOTS = [
  {
    name: "Tokens per second",
    label: "Tokens generated per second",
    big: true,
    height: 160,
    least: 8,
    format: plain(rate),
    kind: "line",
    series: [{ field: "tokens_per_s", name: "tokens", color: "azurite" }],
  },
  {
    name: "Requests",
    height: 104,
    least: 4,
    isWhole: true,
    format: plain(count),
    kind: "stack",
    series: [
      { field: "running", name: "running", color: "malachite" },
      { field: "waiting", name: "waiting", color: "gold" },
    ],
  },
  {
    name: "KV cache",
    height: 104,
    fixed: 1,
    format: (value) => [percent(value), "%"],
    kind: "stack",
    nothing: "This model has no KV cache, or the engine has not told yet",
    series: [
      { field: "kv_held", name: "in use", color: "azurite" },
      { field: "kv_cached", name: "reusable", color: "stone" },
    ],
  },
  {
    name: "First token",
    label: "Time to first token",
    height: 104,
    least: 0.04,
    format: seconds,
    kind: "band",
    nothing: "No first token in this time",
    series: [
      { field: "first_token_p50", name: "median", color: "azurite" },
      { field: "first_token_p95", name: "95 %", color: "azurite" },
    ],
  },
  {
    name: "Between tokens",
    label: "Time between tokens",
    height: 104,
    least: 0.01,
    format: seconds,
    kind: "band",
    nothing: "No tokens in this time",
    series: [
      { field: "between_tokens_p50", name: "median", color: "azurite" },
      { field: "between_tokens_p95", name: "95 %", color: "azurite" },
    ],
  },
];

export class Board {
  constructor() {
    this.samples = null;
    this.span = 900;
    this.cursorTime = null;
    this.scheduled = false;
    this.plots = PLOTS.map((spec) => new Plot({ nothing: "", ...spec }, this));
    byId("plots").append(...this.plots.map((plot) => plot.root));
    for (const radio of document.querySelectorAll("input[name=span]")) {
      radio.addEventListener("change", () => {
        this.span = Number(radio.value);
        this.draw();
      });
    }
  }

  show(samples) {
    this.samples = samples;
    this.draw();
  }

  pointAt(share) {
    const times = this.samples?.time ?? [];
    const end = times.at(-1);
    this.cursorTime = share === null || end === undefined ? null : end - (end - this.#start(end)) * (1 - share);
    this.draw();
  }

  // Whether the key was one that moves the cursor.
  key(name) {
    const times = this.samples?.time ?? [];
    if (!times.length) return false;
    const end = times.at(-1);
    const start = Math.max(times[0], this.#start(end));
    const step = Math.max(1, Math.round((end - start) / 180));
    const at = this.cursorTime ?? end;
    const moved = {
      ArrowLeft: at - step,
      ArrowDown: at - step,
      ArrowRight: at + step,
      ArrowUp: at + step,
      PageUp: at + 10 * step,
      PageDown: at - 10 * step,
      Home: start,
      End: end,
    }[name];
    if (moved === undefined && name !== "Escape") return false;
    this.cursorTime = moved === undefined ? null : Math.min(Math.max(moved, start), end);
    this.draw();
    return true;
  }

  draw() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      this.#draw();
    });
  }

  #draw() {
    const samples = this.samples;
    if (!samples) return;
    const times = samples.time;
    const end = times.at(-1) ?? Date.now() / 1000;
    const start = this.#start(end);
    const from = firstAfter(times, start);
    const index = times.length ? this.#index(times, from) : null;
    const cursor = this.cursorTime !== null;
    const view = { samples, from, index, start, end, cursor };
    for (const plot of this.plots) plot.draw(view);
    const ago = index === null ? 0 : end - times[index];
    const text = cursor && index !== null ? `${clock(times[index])}, ${duration(ago)} ago` : "";
    setText(byId("cursor-text"), text);
  }

  // A young server has less to show than was asked for.
  #start(end) {
    const first = this.samples.time[0] ?? end;
    return Math.max(end - this.span, Math.min(first, end - LEAST_SPAN_S));
  }

  #index(times, from) {
    const last = times.length - 1;
    if (this.cursorTime === null) return last;
    const next = Math.min(firstAfter(times, this.cursorTime), last);
    const before = Math.max(next - 1, from);
    const isNearer = this.cursorTime - times[before] < times[next] - this.cursorTime;
    return Math.max(isNearer ? before : next, from);
  }
}

// Index of the first time that is not before the given one.
function firstAfter(times, time) {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}
