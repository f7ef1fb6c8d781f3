// Dark and light, and the colours that canvases take from the style.

const Theme = {
  changed: new Signal(),
  colors: new Map(),

  start() {
    const media = matchMedia("(prefers-color-scheme: dark)");
    const show = (name) => {
      document.documentElement.dataset.theme = name;
      this.colors.clear();
      this.changed.emit();
    };
    media.addEventListener("change", () => show(media.matches ? "dark" : "light"));
    document.getElementById("theme-button").addEventListener("click", () => {
      show(this.isDark() ? "light" : "dark");
    });
    show(media.matches ? "dark" : "light");
  },

  isDark() {
    return document.documentElement.dataset.theme === "dark";
  },

  color(name) {
    let value = this.colors.get(name);
    if (value === undefined) {
      value = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
      this.colors.set(name, value);
    }
    return value;
  },
};

// Hues that neighbours can be told apart by, also with a red-green weakness: lightness differs too.
const HUES = [
  [212, 52, 52],
  [28, 88, 58],
  [142, 38, 46],
  [354, 66, 60],
  [276, 34, 60],
  [186, 40, 52],
  [46, 80, 58],
  [330, 52, 66],
  [20, 30, 46],
  [96, 38, 52],
  [236, 48, 66],
  [166, 42, 40],
];

// Of what a recording says nothing about.
const GREY = -1;

// The colour of the n-th thing by size: the first twelve are clear, the others are variations.
function hueOf(number) {
  if (number === GREY) return [214, 10, 62];
  const [hue, saturation, lightness] = HUES[number % HUES.length];
  const round = Math.floor(number / HUES.length) % 4;
  return [hue + round * 7, saturation - round * 6, lightness + [0, 9, -8, 16][round]];
}

function cssHue(number, shift = 0) {
  const [hue, saturation, lightness] = hueOf(number);
  const dark = Theme.isDark() ? -4 : 2;
  return `hsl(${hue} ${saturation}% ${lightness + dark + shift}%)`;
}

// A colour of CSS as a pixel of an image, in the order that little-endian machines have.
function pixelOf(color) {
  const context = (pixelOf.context ??= Object.assign(document.createElement("canvas"), {
    width: 1,
    height: 1,
  }).getContext("2d", { willReadFrequently: true }));
  context.fillStyle = color;
  context.fillRect(0, 0, 1, 1);
  const [red, green, blue] = context.getImageData(0, 0, 1, 1).data;
  return packPixel(red, green, blue);
}

function packPixel(red, green, blue) {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

// A pixel moved towards another one: 0 is the first, 1 the second.
function mixPixels(first, second, share) {
  const part = (shift) => {
    const from = (first >>> shift) & 255;
    return Math.round(from + (((second >>> shift) & 255) - from) * share);
  };
  return packPixel(part(0), part(8), part(16));
}
