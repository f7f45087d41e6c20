// Times become those of the reader's clock, with the exact one as a title; the slider shows what it stands for.
"use strict";

localise(document);

function localise(root) {
  for (const each of root.querySelectorAll("time[datetime]")) {
    const at = new Date(each.dateTime);
    if (each.title || Number.isNaN(at.getTime()) || !each.dateTime.includes("T")) continue;
    each.title = each.dateTime;
    each.textContent = at.toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" });
  }
}

document.addEventListener("berth:changed", (event) => localise(event.target));

// What takes seconds comes by itself: the page that the link leads to has it, too.
for (const part of document.querySelectorAll("[data-later]")) {
  part.setAttribute("aria-busy", "true");
  fetch(part.dataset.later, { headers: { Accept: "text/html" }, redirect: "error" })
    .then((answer) => answer.text())
    .then((text) => {
      const found = new DOMParser().parseFromString(text, "text/html").getElementById("live");
      if (!found) return;
      for (const each of found.querySelectorAll("[id]")) each.id = `${part.id}-${each.id}`;
      for (const name of ["aria-labelledby", "aria-describedby"]) {
        for (const each of found.querySelectorAll(`[${name}]`)) each.setAttribute(name, `${part.id}-${each.getAttribute(name)}`);
      }
      part.replaceChildren(...found.childNodes);
      localise(part);
    })
    .catch(() => {})  // the link stays
    .finally(() => part.removeAttribute("aria-busy"));
}

for (const form of document.querySelectorAll("form[data-slider]")) {
  const range = form.querySelector("input[type=range]");
  const output = form.querySelector("output");
  const show = () => {
    const minutes = Number(range.value);
    const then = new Date(Date.now() - minutes * 60000);
    output.textContent = minutes === 0 ? "now" : then.toLocaleString(undefined, { dateStyle: "short", timeStyle: "short" });
    range.setAttribute("aria-valuetext", output.textContent);
  };
  let wait = null;
  range.addEventListener("input", show);
  range.addEventListener("change", () => {  // keys change it step by step: wait for the last one
    clearTimeout(wait);
    wait = setTimeout(() => form.requestSubmit(), 600);
  });
  form.querySelector("button").hidden = true;
  show();
}
