"use strict";
// DATA, written before this script: tokens, heads per layer, and the stored heads as pictures whose opacity is the square root.
const LISTED = 8;
const buttons = [...document.querySelectorAll(".tokens button")];
const choice = document.getElementById("head");
const answer = document.getElementById("answer");
const matrix = document.querySelector("#matrix image");
const thumbnails = [...document.querySelectorAll("#overview image")];
const count = buttons.length;
let token = DATA.token;
let weights = null;

function readPicture(address) {
  return new Promise((resolve) => {
    const picture = new Image();
    picture.onload = () => {
      const canvas = document.createElement("canvas");
      canvas.width = canvas.height = count;
      const context = canvas.getContext("2d", { willReadFrequently: true });
      context.drawImage(picture, 0, 0);
      const pixels = context.getImageData(0, 0, count, count).data;
      resolve(Float32Array.from({ length: count * count }, (_, cell) => (pixels[4 * cell + 3] / 255) ** 2));
    };
    picture.src = address;
  });
}

async function showHead(name) {
  choice.value = name;
  const address = DATA.heads[name];
  const read = await readPicture(address);
  if (choice.value !== name) return;
  weights = read;
  matrix.setAttribute("href", address);
  const [layer, head] = name.split(".").map(Number);
  matrix.querySelector("title").textContent = `layer ${layer}, head ${head}`;
  document.querySelector("#matrix svg").setAttribute("aria-label", `Attention of layer ${layer}, head ${head}`);
  const place = (layer - 1) * DATA.perRow + head - 1;
  thumbnails.forEach((each, number) => each.classList.toggle("shown", number === place));
  shade();
}

function shade() {
  if (weights === null) return;
  const looks = document.querySelector("[name=direction]:checked").value === "from";
  const shares = DATA.tokens.map((_, other) => weights[looks ? token * count + other : other * count + token]);
  buttons.forEach((button, number) => {
    button.style.setProperty("--share", `${Math.round(70 * Math.sqrt(shares[number]))}%`);
    button.setAttribute("aria-pressed", String(number === token));
    button.tabIndex = number === token ? 0 : -1;
    button.title = `${number + 1} ${DATA.tokens[number]}: ${shares[number].toFixed(3)}`;
  });
  const order = shares.map((_, number) => number).sort((one, other) => shares[other] - shares[one]);
  const said = order.slice(0, LISTED).map((number) => `${DATA.tokens[number]} (${number + 1}) ${shares[number].toFixed(2)}`);
  const name = document.createElement("b");
  name.textContent = `${DATA.tokens[token]} (${token + 1})`;
  answer.replaceChildren(name, ` ${looks ? "looks at" : "is looked at by"}: ${said.join(", ")}`);
}

function choose(number, focus) {
  token = Math.min(count - 1, Math.max(0, number));
  shade();
  if (focus) buttons[token].focus();
}

buttons.forEach((button, number) => {
  button.addEventListener("click", () => choose(number, true));
  button.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    choose(number + step, true);
  });
});
thumbnails.forEach((each, place) => {
  const name = `${Math.floor(place / DATA.perRow) + 1}.${(place % DATA.perRow) + 1}`;
  if (!(name in DATA.heads)) return;
  each.classList.add("stored");
  each.addEventListener("click", () => showHead(name));
});
choice.addEventListener("change", () => showHead(choice.value));
for (const each of document.querySelectorAll("[name=direction]")) each.addEventListener("change", shade);
showHead(DATA.first);
