// Rows of slices, counters and arrows on a canvas. What is below a pixel shares it: as strong as
// the part of the pixel that is busy, in the colour of the longest there.

// Draws a row; `scene` has the context, the axis, the plot and what is marked.
function paintRow(model, row, top, height, scene) {
  const { context, axis, plot, marks, colors } = scene;
  const perNs = plot.width / axis.span;
  const nsPerPixel = 1 / perNs;
  const last = model.firstOf[row + 1];
  let [pixel, busy, longest, longestName, hasMark] = [-1, 0, -1, 0, false];
  const flush = () => {
    if (pixel < 0) return;
    const isDim = marks !== null && !hasMark;
    context.globalAlpha = isDim ? 0.2 : Math.min(1, 0.3 + (0.7 * busy) / nsPerPixel);
    context.fillStyle = isDim ? Theme.color("busy") : colors[longestName];
    context.fillRect(pixel, top, 1, height);
    context.globalAlpha = 1;
    pixel = -1;
  };
  for (let k = model.firstBehind(row, axis.low); k < last; k += 1) {
    const slice = model.inRows[k];
    const start = model.start[slice];
    if (start > axis.high) break;
    const duration = model.duration[slice];
    const x = plot.left + (start - axis.low) * perNs;
    const width = duration * perNs;
    const name = model.nameOf[slice];
    if (width < 1.5) {
      const at = Math.floor(x);
      if (at !== pixel) {
        flush();
        [pixel, busy, longest, hasMark] = [at, 0, -1, false];
      }
      busy += duration;
      const isMarked = marks !== null && marks[name] === 1;
      if ((isMarked && !hasMark) || (isMarked === hasMark && duration > longest)) {
        [longest, longestName] = [duration, name];
      }
      hasMark ||= isMarked;
      continue;
    }
    flush();
    const left = Math.max(x, plot.left);
    const right = Math.min(x + width, plot.left + plot.width);
    const isDim = marks !== null && !marks[name];
    context.globalAlpha = isDim ? 0.25 : 1;
    context.fillStyle = isDim ? Theme.color("busy") : colors[name];
    context.fillRect(left, top, Math.max(right - left - (width > 4 ? 0.75 : 0), 0.75), height);
    context.globalAlpha = 1;
    if (right - left > 34)
      labelSlice(context, model.names[name], left, top, right - left, height, isDim);
  }
  flush();
}

function labelSlice(context, text, left, top, width, height, isDim) {
  const characters = Math.floor((width - 8) / 6.1);
  if (characters < 3) return;
  const shown = text.length > characters ? `${text.slice(0, characters - 1)}…` : text;
  context.fillStyle = isDim ? Theme.color("faint") : "#fff";
  context.fillText(shown, left + 4, top + height / 2 + 0.5);
}

// A counter as steps over its lane, `most` of which fills the lane.
function paintCounter(times, values, most, top, height, scene, color) {
  const { context, axis, plot } = scene;
  const yOf = (value) => top + height - (Math.max(value, 0) / (most || 1)) * (height - 3);
  const xOf = (time) => plot.left + ((time - axis.low) / axis.span) * plot.width;
  let k = Math.max(upperBound(times, axis.low) - 1, 0);
  context.beginPath();
  context.moveTo(Math.max(xOf(times[k] ?? 0), plot.left), top + height);
  let [pixel, highest] = [-1, -Infinity];
  for (; k < times.length && times[k] <= axis.high; k += 1) {
    const x = Math.max(xOf(times[k]), plot.left);
    const until = Math.min(
      k + 1 < times.length ? xOf(times[k + 1]) : plot.left + plot.width,
      plot.left + plot.width,
    );
    highest = Math.max(highest, values[k]);
    if (Math.floor(until) === pixel) continue;
    pixel = Math.floor(until);
    context.lineTo(x, yOf(highest));
    context.lineTo(until, yOf(highest));
    highest = -Infinity;
  }
  context.lineTo(
    Math.min(xOf(times[Math.max(k - 1, 0)] ?? 0) + plot.width, plot.left + plot.width),
    top + height,
  );
  context.closePath();
  context.globalAlpha = 0.35;
  context.fillStyle = color;
  context.fill();
  context.globalAlpha = 1;
  context.strokeStyle = color;
  context.lineWidth = 1;
  context.stroke();
}

function paintArrow(context, fromX, fromY, toX, toY) {
  const bend = Math.max(Math.abs(toX - fromX) * 0.4, 14);
  context.beginPath();
  context.moveTo(fromX, fromY);
  context.bezierCurveTo(fromX + bend, fromY, toX - bend, toY, toX, toY);
  context.stroke();
  context.beginPath();
  context.moveTo(toX, toY);
  context.lineTo(toX - 6, toY - 3.5);
  context.lineTo(toX - 6, toY + 3.5);
  context.fill();
}
