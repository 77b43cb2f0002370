// One plot of some columns over time. Colours are the style sheet's; sizes follow the element.

import { el, setText, svg } from "./dom.js";
import { clock, duration } from "./format.js";

const STEPS = [1, 1.2, 1.6, 2, 3, 4, 6, 8, 10, 12]; // half of each is a short number, too
const GAP_S = 3.5; // samples come once a second; a longer hole is not drawn over
const TOP = 16;
const BOTTOM = 16;

function niceAbove(value, isWhole) {
  const power = 10 ** Math.floor(Math.log10(value));
  const fits = (nice) => nice >= value * 0.9999 && !(isWhole && nice % 2);
  return STEPS.map((step) => step * power).find(fits);
}

// spec: {name, label, height, least, fixed, isWhole, format, nothing, series: [{field, name, color}], kind}
// kind: "line"; "stack": each series stands on the one before; "band": filled between the two.
export class Plot {
  constructor(spec, board) {
    this.spec = spec;
    this.board = board;
    this.width = 0;
    this.figures = spec.series.map((series) => ({
      value: el("span", { class: "value" }, "–"),
      unit: el("span", { class: "unit" }),
      series,
    }));
    this.drawing = svg("svg", { height: spec.height, "aria-hidden": "true" });
    this.area = el(
      "div",
      { class: "area", tabindex: "0", role: "slider", "aria-label": spec.label ?? spec.name, "aria-orientation": "horizontal" },
      this.drawing,
      (this.nothing = el("p", { class: "nothing" }, spec.nothing)),
    );
    this.root = el(
      "div",
      { class: `plot ${spec.kind} ${spec.big ? "big" : ""}` },
      el("div", { class: "plot-head" }, el("h3", {}, spec.name), this.#figureRow()),
      this.area,
    );
    this.#listen();
  }

  #figureRow() {
    const many = this.figures.length > 1;
    return el(
      "p",
      { class: "figures" },
      ...this.figures.map(({ value, unit, series }) =>
        el(
          "span",
          { class: "figure", "data-color": series.color },
          value,
          unit,
          many ? el("span", { class: "key" }, el("i", {}), series.name) : null,
        ),
      ),
    );
  }

  #listen() {
    new ResizeObserver(([entry]) => {
      this.width = Math.floor(entry.contentRect.width);
      this.board.draw();
    }).observe(this.area);
    this.area.addEventListener("pointermove", (event) => {
      const box = this.area.getBoundingClientRect();
      this.board.pointAt((event.clientX - box.left) / box.width);
    });
    this.area.addEventListener("pointerleave", () => this.board.pointAt(null));
    this.area.addEventListener("blur", () => this.board.pointAt(null));
    this.area.addEventListener("keydown", (event) => {
      if (this.board.key(event.key)) event.preventDefault();
    });
  }

  // view: {samples, from, index, start, end, cursor}: shown are samples[from...], index is the one
  // that the figures tell, cursor whether somebody points at it.
  draw(view) {
    this.#tell(view);
    if (!this.width) return;
    const { spec, width } = this;
    const height = spec.height;
    this.drawing.setAttribute("width", width);
    const heights = this.#heights(view);
    const most = Math.max(0, ...heights.flat().filter((value) => value !== null));
    const top = spec.fixed ?? niceAbove(Math.max(most, spec.least), spec.isWhole);
    const times = view.samples.time;
    const x = (i) => ((times[i] - view.start) / (view.end - view.start)) * width;
    const y = (value) => height - BOTTOM - (value / top) * (height - TOP - BOTTOM);
    const parts = [];
    for (const share of [0, 0.5, 1]) {
      const at = Math.round(y(top * share)) + 0.5;
      parts.push(svg("line", { class: share ? "grid" : "base", x1: 0, x2: width, y1: at, y2: at }));
    }
    const hasAny = heights.some((column) => column.some((value) => value !== null));
    this.nothing.hidden = hasAny;
    spec.series.forEach((series, n) => {
      const below = spec.kind === "stack" || spec.kind === "band" ? heights[n - 1] : null;
      const filled = spec.kind === "band" ? n > 0 : true;
      for (const run of runs(heights[n], times, view.from)) {
        const line = run.map((i) => `${x(i).toFixed(1)} ${y(heights[n][i - view.from]).toFixed(1)}`);
        if (filled) {
          const floor = run
            .map((i) => `${x(i).toFixed(1)} ${y(below ? below[i - view.from] ?? 0 : 0).toFixed(1)}`)
            .reverse();
          parts.push(
            svg("path", { class: "fill", "data-color": series.color, d: `M${line.join("L")}L${floor.join("L")}Z` }),
          );
        }
        if (run.length === 1) {
          const [cx, cy] = line[0].split(" ");
          parts.push(svg("circle", { class: "dot", "data-color": series.color, cx, cy, r: 1.5 }));
        } else {
          const kind = spec.kind === "band" && n > 0 ? "line thin" : "line";
          parts.push(svg("path", { class: kind, "data-color": series.color, d: `M${line.join("L")}` }));
        }
      }
    });
    if (view.cursor && view.index !== null) {
      const at = x(view.index);
      parts.push(svg("line", { class: "cursor", x1: at, x2: at, y1: 0, y2: height - BOTTOM }));
      spec.series.forEach((series, n) => {
        const value = heights[n][view.index - view.from];
        if (value === null) return;
        parts.push(svg("circle", { class: "dot", "data-color": series.color, cx: at, cy: y(value), r: 3.5 }));
      });
    }
    for (const share of [0.5, 1]) {
      const [number, unit] = spec.format(top * share);
      const text = svg("text", { class: "scale", x: 0, y: y(top * share) - 4 });
      text.textContent = unit ? `${number} ${unit}` : number;
      parts.push(text);
    }
    const span = svg("text", { class: "scale", x: 0, y: height - 2 });
    const length = view.end - view.start;
    span.textContent = `${duration(length > 120 ? Math.round(length / 60) * 60 : length)} ago`;
    const now = svg("text", { class: "scale", x: width, y: height - 2, "text-anchor": "end" });
    now.textContent = "now";
    parts.push(span, now);
    this.drawing.replaceChildren(...parts);
  }

  // Columns of the shown part, the second one on the first where the plot is a stack; nothing on
  // top is not drawn.
  #heights({ samples, from }) {
    const columns = this.spec.series.map(({ field }) => samples[field].slice(from));
    if (this.spec.kind !== "stack") return columns;
    return columns.map((column, n) => {
      const below = columns[n - 1];
      if (!n) return column;
      const isDrawn = (value, i) => value !== null && (value || column[i - 1] || column[i + 1]);
      return column.map((value, i) => (isDrawn(value, i) ? value + (below[i] ?? 0) : null));
    });
  }

  #tell({ samples, index, start, end }) {
    const told = [];
    this.figures.forEach(({ value, unit, series }) => {
      const number = index === null ? null : samples[series.field][index];
      const [text, of] = number === null || number === undefined ? ["–", ""] : this.spec.format(number);
      setText(value, text);
      setText(unit, of ? `\u2009${of}` : "");
      told.push(`${this.figures.length > 1 ? `${series.name} ` : ""}${text === "–" ? "none" : `${text} ${of}`}`.trim());
    });
    const at = index === null ? "no sample yet" : `${clock(samples.time[index])}: ${told.join(", ")}`;
    const offset = index === null ? 0 : Math.round(samples.time[index] - end);
    for (const [name, value] of Object.entries({
      "aria-valuemin": Math.round(start - end),
      "aria-valuemax": 0,
      "aria-valuenow": offset,
      "aria-valuetext": at,
    })) {
      this.area.setAttribute(name, value);
    }
  }
}

// Indices of samples that hang together: none of them missing, no hole in time.
function runs(column, times, from) {
  const found = [];
  let run = [];
  column.forEach((value, k) => {
    const i = from + k;
    const breaks = value === null || (run.length > 0 && times[i] - times[i - 1] > GAP_S);
    if (breaks && run.length) {
      found.push(run);
      run = [];
    }
    if (value !== null) run.push(i);
  });
  if (run.length) found.push(run);
  return found;
}
