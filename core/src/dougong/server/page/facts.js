// What the start settled, what fell back, what went wrong: lists of words.

import { byId, el } from "./dom.js";
import { bytes, clock, count, duration, plural } from "./format.js";

export function showFacts(about) {
  const rows = [
    ["Platform", about.platform, [about.platform_wheel, ...about.platform_reasons]],
    [about.devices.length > 1 ? "Devices" : "Device", about.devices.join(", ") || "not named", [about.arch]],
    ["Model", about.architecture, [`computed in ${about.dtype}`, ...about.weights.map(weightLine)]],
    ["Room for a request", plural(about.max_model_len, "token", "tokens"), ["prompt and answer together"]],
    ["Attention", Object.entries(about.attention).map(([name, layers]) => `${name}, ${plural(layers, "layer", "layers")}`).join("; ") || "none", []],
    ["Ops", opsLine(about.ops), [opsDetails(about.ops)]],
    ["Steps", about.mode.name, [about.mode.reason]],
    ["Memory", memoryLine(about.memory), [memoryBar(about.memory)]],
    cacheRow(about),
    ["Evidence", about.conformance || "no certificate", []],
  ];
  byId("facts").replaceChildren(
    ...rows.flatMap(([name, value, more]) => [
      el("dt", {}, name),
      el("dd", {}, el("strong", {}, value), ...more.filter(Boolean).map(detail)),
    ]),
  );
  showFallbacks(about);
}

function cacheRow({ num_token_slots: slots, block_size: size, kv_dtype: dtype }) {
  if (slots === null) return ["KV cache", "none", ["this model keeps nothing between steps"]];
  return ["KV cache", `room for ${plural(slots, "token", "tokens")}`, [`blocks of ${size} in ${dtype}`]];
}

function detail(part) {
  return typeof part === "string" ? el("span", { class: "detail" }, part) : part;
}

function weightLine(one) {
  return one.where === "as stored" ? `${one.format} weights as stored` : `${one.format} weights ${one.where}`;
}

function opsLine(ops) {
  const families = new Map();
  for (const bound of Object.values(ops)) {
    for (const name of Object.keys(bound)) {
      const family = name === "native" ? "plain torch" : name.split("/")[0];
      families.set(family, (families.get(family) ?? 0) + 1);
    }
  }
  return [...families].map(([family, kinds]) => `${plural(kinds, "kind", "kinds")} on ${family}`).join(", ") || "none";
}

function opsDetails(ops) {
  const rows = Object.entries(ops).flatMap(([op, bound]) =>
    Object.entries(bound).map(([name, times]) =>
      el("tr", {}, el("th", { scope: "row" }, op), el("td", {}, name), el("td", { class: "number" }, count(times))),
    ),
  );
  const head = el("tr", {}, ...["Op", "Runs", "Times"].map((name) => el("th", { scope: "col" }, name)));
  return el(
    "details",
    { class: "detail" },
    el("summary", {}, "Every op"),
    el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows)),
  );
}

function memoryLine(memory) {
  return `${bytes(memory.weights)} weights, ${bytes(memory.kv_cache)} KV cache`;
}

function memoryBar({ limit, budget, weights, kv_cache: cache }) {
  const whole = Math.max(limit, weights + cache, 1);
  const bar = el("span", { class: "bar", "aria-hidden": "true" }, el("i", { "data-color": "azurite" }), el("i", { "data-color": "malachite" }));
  bar.children[0].style.width = `${(weights / whole) * 100}%`;
  bar.children[1].style.width = `${(cache / whole) * 100}%`;
  return el("span", { class: "detail" }, bar, `of ${bytes(budget)} it may use; the device has ${bytes(limit)}`);
}

const LEVELS = { op: "op", path: "path", platform: "platform" };

function showFallbacks(about) {
  const lines = [
    ...about.fallbacks.map((one) => [LEVELS[one.level] ?? one.level, one.subject, one.reason, one.cost_hint]),
    ...about.plugin_faults.map((text) => ["plugin", "", text, ""]),
    ...about.notes.map((text) => ["note", "", text, ""]),
  ];
  byId("fallbacks").replaceChildren(
    lines.length
      ? el("ul", { class: "lines" }, ...lines.map(fallbackLine))
      : el("p", { class: "none" }, "None: everything runs on what was made for it."),
  );
}

function fallbackLine([tag, subject, reason, cost]) {
  return el(
    "li",
    {},
    el("span", { class: "tag", "data-tag": tag }, tag),
    el("p", {}, subject ? el("strong", {}, subject) : null, subject ? ": " : null, reason, cost ? el("span", { class: "detail" }, cost) : null),
  );
}

export function showErrors(errors, now) {
  byId("errors").replaceChildren(
    errors.length
      ? el("ol", { class: "lines" }, ...errors.map((one) => errorLine(one, now)))
      : el("p", { class: "none" }, "None since the start."),
  );
}

function errorLine(one, now) {
  const time = new Date(one.time * 1000);
  const ago = `${duration(now - one.time)} ago`;
  return el(
    "li",
    {},
    el("span", { class: "tag", "data-tag": one.status === 429 ? "note" : "error" }, String(one.status)),
    el(
      "p",
      {},
      el("strong", {}, one.route),
      one.count > 1 ? ` ${count(one.count)} times` : null,
      ": ",
      one.message,
      el("span", { class: "detail" }, one.kind, ", ", el("time", { datetime: time.toISOString() }, `${clock(one.time)}, ${ago}`)),
    ),
  );
}

export function showTotals(totals) {
  const cached = totals.prompt_tokens ? Math.round((totals.cached_tokens / totals.prompt_tokens) * 100) : 0;
  const rows = [
    ["answered", count(totals.finished)],
    ["refused", count(totals.refused)],
    ["client left", count(totals.aborted)],
    ["failed", count(totals.failed), totals.failed > 0],
    ["tokens in", count(totals.prompt_tokens)],
    ["cached", `${cached} %`],
    ["tokens out", count(totals.generated_tokens)],
    ["preemptions", count(totals.preemptions ?? 0)],
  ];
  byId("totals").replaceChildren(
    ...rows.map(([name, value, isBad]) => el("div", { class: isBad ? "bad" : null }, el("dt", {}, name), el("dd", {}, value))),
  );
}
