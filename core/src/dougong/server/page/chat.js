// A conversation with the model, streamed, that can be stopped at any time.

import { Failure, ask, events } from "./api.js";
import { byId, el, setText } from "./dom.js";
import { plural, rate, seconds } from "./format.js";

export class Chat {
  constructor(onFailure) {
    this.onFailure = onFailure;
    this.turns = [];
    this.hasChat = true;
    this.makesText = true;
    this.running = null;
    this.question = byId("question");
    this.send = byId("send");
    this.talk = byId("talk");
    byId("chat-form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.running) this.stop();
      else this.#begin();
    });
    this.question.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        if (!this.running) this.#begin();
      }
    });
    byId("chat").addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.running) this.stop();
    });
    byId("chat-new").addEventListener("click", () => this.#clear());
    this.#empty();
  }

  about(about) {
    this.hasChat = about.has_chat;
    this.makesText = about.makes_text;
    const title = this.hasChat ? "Chat" : "Continue a text";
    setText(byId("chat-title"), this.makesText ? title : "Vectors");
    byId("chat-form").hidden = !this.makesText;
    byId("chat-new").hidden = !this.makesText;
    this.question.placeholder = this.hasChat ? "Ask the model" : "The model has no chat template: it continues what you write";
    byId("system").disabled = !this.hasChat;
    this.#empty();
  }

  models(names) {
    const select = byId("chat-model");
    const chosen = select.value;
    select.replaceChildren(...names.map((name) => el("option", {}, name)));
    if (names.includes(chosen)) select.value = chosen;
    select.hidden = names.length < 2;
  }

  stop() {
    this.running?.abort();
  }

  #clear() {
    this.stop();
    this.turns = [];
    this.talk.replaceChildren();
    this.#empty();
    this.question.focus();
  }

  #empty() {
    byId("chat-new").disabled = !this.talk.querySelector(".turn");
    const known = this.talk.querySelector(".hello");
    if (this.talk.querySelector(".turn")) {
      known?.remove();
      return;
    }
    const text = this.#greeting();
    if (known) setText(known, text);
    else this.talk.append(el("p", { class: "hello" }, text));
  }

  #greeting() {
    if (!this.makesText) {
      return "This model makes vectors of texts, at /v1/embeddings. It cannot be talked to.";
    }
    if (!this.hasChat) return "Write the beginning of a text, and the model goes on with it.";
    return "Talk to the model that this server runs. What you write goes to this server alone.";
  }

  async #begin() {
    const text = this.question.value.trim();
    if (!text) return;
    this.question.value = "";
    const mine = this.#turn("user", text);
    const answer = this.#turn("assistant", "");
    const controller = (this.running = new AbortController());
    this.#showRunning(true);
    let outcome;
    try {
      outcome = await this.#stream(text, answer, controller.signal);
      setText(byId("chat-status"), `Answer finished. ${answer.text}`);
    } catch (error) {
      outcome = controller.signal.aborted ? this.#stopped(answer) : this.#failed(error, answer);
    } finally {
      if (this.running === controller) {
        this.running = null;
        this.#showRunning(false);
      }
    }
    if (!mine.root.isConnected) return; // another chat was begun
    answer.root.classList.remove("open");
    this.#write(answer);
    if (answer.text || outcome.isKept) {
      this.turns.push({ role: "user", content: text }, { role: "assistant", content: answer.text });
      answer.note.append(outcome.note);
    } else {
      mine.root.remove();
      if (outcome.note) answer.note.append(outcome.note);
      else answer.root.remove();
      if (!this.question.value) this.question.value = text;
    }
    this.#empty();
  }

  async #stream(text, answer, signal) {
    const begun = performance.now();
    let first = null;
    let usage = null;
    let reason = null;
    const response = await ask(this.hasChat ? "v1/chat/completions" : "v1/completions", {
      body: this.#body(text),
      signal,
    });
    for await (const event of events(response)) {
      usage = event.usage ?? usage;
      const choice = event.choices[0];
      if (!choice) continue;
      reason = choice.finish_reason ?? reason;
      const piece = (this.hasChat ? choice.delta.content : choice.text) ?? "";
      if (piece && first === null) first = performance.now();
      this.#grow(answer, piece);
    }
    return { isKept: true, note: timesOf({ begun, first, end: performance.now(), usage, reason }) };
  }

  #body(text) {
    const body = { model: byId("chat-model").value || undefined, stream: true, stream_options: { include_usage: true } };
    const [temperature, most] = [byId("temperature").value, byId("max-tokens").value];
    if (temperature !== "") body.temperature = Number(temperature);
    if (most !== "") body.max_tokens = Number(most);
    if (!this.hasChat) return { ...body, prompt: text };
    const system = byId("system").value.trim();
    const before = system ? [{ role: "system", content: system }] : [];
    return { ...body, messages: [...before, ...this.turns, { role: "user", content: text }] };
  }

  #stopped(answer) {
    setText(byId("chat-status"), "Stopped.");
    return { isKept: answer.text !== "", note: answer.text ? "Stopped" : "" };
  }

  #failed(error, answer) {
    const note = el("span", { class: "bad" }, error.message);
    setText(byId("chat-status"), error.message);
    answer.root.classList.add("failed");
    if (error instanceof Failure) this.onFailure(error);
    else setText(note, "The server does not answer.");
    return { isKept: false, note };
  }

  #turn(role, text) {
    const body = el("div", { class: "words" });
    const note = el("p", { class: "note" });
    const who = role === "user" ? "You" : "Model";
    const root = el("div", { class: `turn ${role} ${role === "assistant" ? "open" : ""}` }, el("span", { class: "unseen" }, `${who}: `), body, note);
    const turn = { root, body, note, text };
    body.append(...words(text));
    this.talk.append(root);
    this.#empty();
    this.talk.scrollTop = this.talk.scrollHeight;
    return turn;
  }

  #grow(answer, piece) {
    if (!piece) return;
    answer.text += piece;
    if (answer.isDue) return;
    answer.isDue = true;
    requestAnimationFrame(() => this.#write(answer));
  }

  #write(answer) {
    answer.isDue = false;
    const isAtEnd = this.talk.scrollHeight - this.talk.scrollTop - this.talk.clientHeight < 48;
    answer.body.replaceChildren(...words(answer.text));
    if (isAtEnd) this.talk.scrollTop = this.talk.scrollHeight;
  }

  #showRunning(isRunning) {
    setText(this.send, isRunning ? "Stop" : "Send");
    this.send.classList.toggle("stop", isRunning);
    this.talk.setAttribute("aria-busy", String(isRunning));
    setText(byId("chat-hint"), isRunning ? "Esc stops the answer." : "Enter sends, Shift+Enter breaks the line.");
    if (isRunning) setText(byId("chat-status"), "The model answers.");
  }
}

function timesOf({ begun, first, end, usage, reason }) {
  if (first === null) return "An empty answer";
  const parts = [];
  if (usage) parts.push(plural(usage.completion_tokens, "token", "tokens"));
  parts.push(`first after ${seconds((first - begun) / 1000).join(" ")}`);
  const rest = (usage?.completion_tokens ?? 0) - 1;
  if (rest > 0 && end > first) parts.push(`${rate((rest * 1000) / (end - first))} tokens/s`);
  if (reason === "length") parts.push("cut at the most tokens");
  return parts.join(", ");
}

// Fenced code, code in a line and **stress**; everything else as it was written.
function words(text) {
  return text.split("```").flatMap((part, n) => {
    if (n % 2) return [el("pre", {}, el("code", {}, part.replace(/^[\w+-]*\n/, "").replace(/\n$/, "")))];
    const trimmed = n ? part.replace(/^\n/, "") : part;
    return trimmed.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/).filter(Boolean).map((piece) => {
      if (piece.length > 2 && piece.startsWith("`") && piece.endsWith("`")) return el("code", {}, piece.slice(1, -1));
      if (piece.length > 4 && piece.startsWith("**") && piece.endsWith("**")) return el("strong", {}, piece.slice(2, -2));
      return piece;
    });
  });
}
