// Times are of the reader's clock, with the exact one as a title, and he may type what he sees; the slider shows what it stands for.
"use strict";

const FULL = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/;
const MOMENTS = ["at", "from", "until", "since"];

const two = (number) => String(number).padStart(2, "0");

/** Return a time as tables and fields have it: 2026-01-31 08:00:00, by the reader's clock. */
function local(at) {
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

localise(document);

function localise(root) {
  for (const each of root.querySelectorAll("time[datetime]")) {
    if (each.title || !FULL.test(each.dateTime)) continue;
    each.title = each.dateTime;
    each.textContent = local(new Date(each.dateTime));
  }
  for (const each of momentFields(root)) {
    if (FULL.test(each.value)) each.value = local(new Date(each.value)) + (/\.\d*[1-9]/.exec(each.value) || [""])[0];
  }
}

function momentFields(root) {
  return MOMENTS.flatMap((name) => [...root.querySelectorAll(`input[name="${name}"]:not([type=hidden])`)]);
}

/** Return what a clock time or a date without an offset means by the reader's clock, in full; anything else as it is. */
function full(text, takesBatches) {
  const found = /^(?:(?:(\d{4})-)?(\d\d)-(\d\d))?(?:(?:^|[ T])(\d{1,2}):(\d\d)(?::(\d\d)(\.\d{1,6})?)?)?$/.exec(text.trim());
  if (!found || !text.trim()) return text;
  const [, year, month, day, hour, minute, second, part] = found;
  if (!month && takesBatches && hour.length === 1 && !second) return text;  // 0:12 is a batch
  if (month && !year && !hour) return text;
  const now = new Date();
  const at = new Date(
    Number(year || now.getFullYear()), month ? month - 1 : now.getMonth(), Number(day || now.getDate()),
    Number(hour || 0), Number(minute || 0), Number(second || 0), Math.floor(1000 * Number(part || 0)),
  );
  if (at.getHours() !== Number(hour || 0) || at.getMinutes() !== Number(minute || 0) || at.getSeconds() !== Number(second || 0)) return text;
  if (month && at.getDate() !== Number(day)) return text;
  if (!month && at > now) at.setDate(at.getDate() - 1);
  return at.toISOString().replace(".000Z", "Z");
}

document.addEventListener("formdata", (event) => {
  const fields = momentFields(event.target);
  const takesBatches = fields.some((each) => each.name === "at" || each.name === "from");
  for (const each of fields) event.formData.set(each.name, full(each.value, takesBatches));
});

for (const each of document.querySelectorAll("[data-zone]")) {
  each.textContent = `Times are of ${Intl.DateTimeFormat().resolvedOptions().timeZone || "this clock"}.`;
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
  const chosen = range.value;
  const show = () => {
    const minutes = Number(range.value);
    const then = range.value === chosen && form.dataset.at ? new Date(form.dataset.at) : new Date(Date.now() - minutes * 60000);
    output.textContent = minutes === 0 && !form.dataset.at ? "now" : local(then);
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
