// Before the first paint: the colours that were chosen last, else the system's.
{
  let chosen = null;
  try {
    chosen = localStorage.getItem("dougong-theme");
  } catch {
    // Storage may be off; the system decides then.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
