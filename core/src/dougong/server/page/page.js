// Asks for the status once a second while somebody can see the page, and shows it.

import { ask, useKey } from "./api.js";
import { Board } from "./board.js";
import { Chat } from "./chat.js";
import { byId, setText } from "./dom.js";
import { showErrors, showFacts, showTotals } from "./facts.js";
import { duration } from "./format.js";

const PERIOD_MS = 1000;
const KEPT_SAMPLES = 900;

const board = new Board();
const chat = new Chat((failure) => {
  if (failure.status === 401) lock("");
});

let known = { started: null, last: 0, about: null, samples: null };
let isLocked = false;
let isTrying = false; // a key that was just entered
let timer = null;

async function poll() {
  clearTimeout(timer);
  if (document.hidden || isLocked) return;
  try {
    take(await (await ask(known.last ? `status.json?after=${known.last}` : "status.json")).json());
    if (isTrying) byId("key-dialog").close();
    isTrying = false;
  } catch (error) {
    if (error.status === 401) {
      lock(isTrying ? "The server does not know this key." : "");
      return;
    }
    showState("lost", "Not reachable");
    trouble("The server does not answer. What you see is how it last was; this page keeps asking.");
  }
  timer = setTimeout(poll, PERIOD_MS);
}

function take(status) {
  if (known.started !== null && status.started !== known.started) {
    known = { started: null, last: 0, about: null, samples: null }; // another server, another history
    if (!status.about) return;
  }
  known.started = status.started;
  known.last = status.history.last;
  known.samples = joined(known.samples, status.history.samples);
  if (status.about) {
    known.about = status.about;
    showAbout(status.about);
  }
  showServer(status);
  showTotals(status.totals);
  showErrors(status.errors, status.now);
  board.show(known.samples);
}

function joined(before, fresh) {
  if (!before) return fresh;
  const names = Object.keys(fresh);
  return Object.fromEntries(names.map((name) => [name, [...before[name], ...fresh[name]].slice(-KEPT_SAMPLES)]));
}

function showAbout(about) {
  const [name] = about.names;
  setText(byId("model"), name);
  document.title = `${name} · Dougong`;
  setText(byId("version"), `Dougong ${about.version}`);
  showFacts(about);
  chat.about(about);
  chat.models(about.names);
  listModels();
}

// Adapters come and go, so the list is asked for and not taken from the start's report.
async function listModels() {
  try {
    const { data } = await (await ask("v1/models")).json();
    chat.models(data.map(({ id }) => id));
  } catch {
    // The names of the start stay; the next status tells whether the server is gone.
  }
}
byId("chat-model").addEventListener("focus", listModels);

function showServer(status) {
  const { about } = known;
  const device = about.devices[0];
  const on = device ? `${about.platform}, ${device}` : about.platform;
  setText(byId("where"), `${about.dtype} on ${on}, up ${duration(status.now - status.started)}`);
  const silence = status.history.samples.silence_s.at(-1) ?? 0;
  if (status.state === "dead") {
    showState("dead", "Engine dead");
    trouble(`The engine is dead: ${status.state_reason}`);
  } else if (status.state === "stopping") {
    showState("stopping", "Stopping");
    trouble("The server is stopping: open answers end, new requests are turned away.");
  } else {
    showState("ok", silence > 2 ? `In a long step, ${duration(silence)}` : "Serving");
    trouble("");
  }
}

function showState(state, text) {
  byId("state").dataset.state = state;
  setText(byId("state-text"), text);
}

function trouble(text) {
  byId("trouble").hidden = !text;
  setText(byId("trouble"), text);
}

function lock(message) {
  isLocked = true;
  isTrying = false;
  showState("locked", "Locked");
  byId("key-button").hidden = false;
  byId("raw").hidden = true; // a link carries no key
  openKey(message);
}

function openKey(message) {
  setText(byId("key-error"), message);
  const dialog = byId("key-dialog");
  if (!dialog.open) dialog.showModal();
  byId("key").focus();
}

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(byId("key").value);
  byId("key").value = "";
  isTrying = true;
  isLocked = false;
  poll();
});
byId("key-cancel").addEventListener("click", () => byId("key-dialog").close());
byId("key-button").addEventListener("click", () => openKey(""));

const dark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
const showTheme = () => byId("theme-button").setAttribute("aria-pressed", String(isDark()));
byId("theme-button").addEventListener("click", () => {
  const theme = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("dougong-theme", theme);
  } catch {
    // Storage may be off; the choice holds for this visit.
  }
  showTheme();
});
dark.addEventListener("change", showTheme);
showTheme();

document.addEventListener("visibilitychange", poll);
poll();
