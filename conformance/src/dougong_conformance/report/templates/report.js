"use strict";
(() => {
  const form = document.getElementById("filter");
  const field = form.elements.q;
  const boxes = [...form.querySelectorAll("input[name=outcome]")];
  const items = [...document.querySelectorAll("[data-text]")];
  const told = document.getElementById("shown");
  const sections = [...document.querySelectorAll("[data-section]")];

  function apply() {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    const isFiltering = words.length > 0 || wanted.size > 0;
    let cases = 0, shown = 0;
    for (const item of items) {
      const outcome = item.dataset.outcome;
      const fits = words.every((word) => item.dataset.text.includes(word)) &&
        (wanted.size === 0 || (outcome !== undefined && outcome.split(" ").some((one) => wanted.has(one))));
      item.classList.toggle("is-out", !fits);
      if (item.dataset.kind === "case") { cases += 1; shown += fits ? 1 : 0; }
    }
    for (const section of sections) {
      const own = [...section.querySelectorAll("[data-text]")];
      const none = own.length > 0 && own.every((item) => item.classList.contains("is-out"));
      section.classList.toggle("is-out", isFiltering && none);
    }
    for (const group of document.querySelectorAll("tbody, details.more")) {
      const own = [...group.querySelectorAll("[data-text]")];
      group.classList.toggle("is-out", own.length > 0 && own.every((item) => item.classList.contains("is-out")));
      if (isFiltering && group.tagName === "DETAILS") { group.open = true; }
    }
    for (const section of document.querySelectorAll("[data-whole]")) {
      section.classList.toggle("is-out", isFiltering);
    }
    told.textContent = isFiltering ? `${shown} of ${cases} cases fit` : `${cases} cases`;
  }

  function fromAddress() {
    if (!location.hash.startsWith("#q=")) { return; }
    const asked = new URLSearchParams(location.hash.slice(1));
    field.value = asked.get("q") || "";
    const wanted = new Set((asked.get("outcome") || "").split(",").filter(Boolean));
    for (const box of boxes) { box.checked = wanted.has(box.value); }
    apply();
    const first = document.querySelector("section[data-section]:not(.is-out)");
    const top = first ? first.getBoundingClientRect().top : 0;
    if (first && (top < form.offsetHeight || top > innerHeight * 0.75)) {
      document.documentElement.style.scrollPaddingTop = `${form.offsetHeight}px`;
      first.scrollIntoView({ block: "start", behavior: "instant" });
    }
  }

  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => { history.replaceState(null, "", " "); setTimeout(apply); });
  addEventListener("hashchange", fromAddress);
  addEventListener("keydown", (event) => {
    const isTyping = /^(input|textarea|select)$/i.test(event.target.tagName) && event.target.type !== "checkbox";
    if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      field.focus();
      field.select();
    } else if (event.key === "Escape") {
      form.reset();
      field.blur();
    }
  });
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) { return; }
    const text = button.previousElementSibling.textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      getSelection().selectAllChildren(button.previousElementSibling);
      document.execCommand("copy");
    }
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  });
  form.hidden = false;
  apply();
  fromAddress();
})();
