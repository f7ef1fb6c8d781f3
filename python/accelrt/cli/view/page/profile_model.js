// A profile: slices by start, grouped into rows, and what they sum up to.

// What the time of a slice is: else it is a wait, in which its track is not busy.
const [OF_THREAD, OF_STREAM] = [1, 2];

class ProfileModel {
  constructor(view) {
    this.head = view.head;
    this.name = view.name;
    const { start, duration, row, name, detail } = view.columns;
    Object.assign(this, { start, duration, row, nameOf: name, detailOf: detail });
    this.columns = view.columns;
    this.count = start.length;
    this.names = view.head.names;
    this.groupByRow();
    this.sumUp();
    this.rankNames();
    this.orderTracks();
  }

  end(slice) {
    return this.start[slice] + this.duration[slice];
  }

  trackOf(slice) {
    return this.head.rows[this.row[slice]][0];
  }

  // The slices of a row stand in `inRows`, from `firstOf[row]` to `firstOf[row + 1]`, by start.
  groupByRow() {
    const rows = this.head.rows.length;
    this.firstOf = new Uint32Array(rows + 1);
    for (let i = 0; i < this.count; i += 1) this.firstOf[this.row[i] + 1] += 1;
    for (let row = 0; row < rows; row += 1) this.firstOf[row + 1] += this.firstOf[row];
    const next = this.firstOf.slice();
    this.inRows = new Uint32Array(this.count);
    for (let i = 0; i < this.count; i += 1) this.inRows[next[this.row[i]]++] = i;
  }

  // The end of all; how long each track is busy, and how long two or more streams are at once.
  sumUp() {
    const tracks = this.head.tracks.length;
    this.busy = new Float64Array(tracks);
    this.slices = new Uint32Array(tracks);
    const until = new Float64Array(tracks).fill(-1);
    const busyUntil = new Float64Array(tracks).fill(-1);
    const { kind } = this.columns;
    const begins = new Float64Array(this.count);
    const ends = new Float64Array(this.count);
    let parts = 0;
    this.last = 0;
    const partOf = new Int32Array(tracks).fill(-1);
    for (let i = 0; i < this.count; i += 1) {
      const track = this.head.rows[this.row[i]][0];
      const end = this.end(i);
      this.slices[track] += 1;
      if (kind[i] >= OF_THREAD && end > busyUntil[track]) {
        this.busy[track] += end - Math.max(this.start[i], busyUntil[track]);
        busyUntil[track] = end;
      }
      if (kind[i] === OF_STREAM && this.start[i] > until[track]) {
        partOf[track] = parts;
        begins[parts] = this.start[i];
        ends[parts] = end;
        parts += 1;
        until[track] = end;
      } else if (kind[i] === OF_STREAM && end > until[track]) {
        ends[partOf[track]] = until[track] = end;
      }
      if (end > this.last) this.last = end;
    }
    this.findOverlap(begins.subarray(0, parts), ends.subarray(0, parts).sort());
    for (const time of this.columns.instant_time) this.last = Math.max(this.last, time);
    this.head.counters.forEach((_, number) => {
      const times = this.columns[`counter${number}_time`];
      this.last = Math.max(this.last, times[times.length - 1] ?? 0);
    });
  }

  findOverlap(begins, ends) {
    this.covered = 0;
    this.overlap = 0;
    let [open, begin, end, before] = [0, 0, 0, 0];
    while (end < ends.length) {
      const isBegin = begin < begins.length && begins[begin] <= ends[end];
      const time = isBegin ? begins[begin] : ends[end];
      if (open > 0) this.covered += time - before;
      if (open > 1) this.overlap += time - before;
      open += isBegin ? 1 : -1;
      if (isBegin) begin += 1;
      else end += 1;
      before = time;
    }
  }

  // Names by all of their time: the longest have the clearest colours.
  rankNames() {
    const totals = new Float64Array(this.names.length);
    for (let i = 0; i < this.count; i += 1) totals[this.nameOf[i]] += this.duration[i];
    this.rank = new Uint32Array(this.names.length);
    const order = Array.from(totals.keys()).sort((a, b) => totals[b] - totals[a]);
    order.forEach((name, rank) => {
      this.rank[name] = rank;
    });
  }

  // Tracks by process and place, as their writer wants them, else as they appear.
  orderTracks() {
    const processes = new Map();
    this.head.tracks.forEach((track, number) => {
      const rows = [];
      this.head.rows.forEach(([of, depth], row) => {
        if (of === number) rows[depth] = row;
      });
      const known = processes.get(track.pid) ?? {
        name: track.process,
        place: track.place[0],
        tracks: [],
      };
      known.tracks.push({ ...track, number, rows });
      processes.set(track.pid, known);
    });
    this.processes = [...processes.values()].sort((a, b) => a.place - b.place);
    for (const process of this.processes) {
      process.tracks = process.tracks
        .filter((track) => track.rows.length || this.hasInstants(track.number))
        .sort((a, b) => a.place[1] - b.place[1]);
    }
  }

  // The largest value of a counter.
  counterMost(number) {
    this.mosts ??= this.head.counters.map((_, of) =>
      this.columns[`counter${of}_value`].reduce((most, value) => Math.max(most, value), 0),
    );
    return this.mosts[number];
  }

  hasInstants(track) {
    return this.columns.instant_track.includes(track);
  }

  // The place in `inRows` of the first slice of a row that ends behind a time.
  firstBehind(row, time) {
    let low = this.firstOf[row];
    let high = this.firstOf[row + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.end(this.inRows[middle]) <= time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // The slice of a row nearest to a time, at most `reach` away; -1 for none.
  sliceAt(row, time, reach) {
    const place = this.firstBehind(row, time - reach);
    let [best, distance] = [-1, reach];
    for (let k = place; k < this.firstOf[row + 1] && k < place + 64; k += 1) {
      const slice = this.inRows[k];
      const away = Math.max(this.start[slice] - time, time - this.end(slice), 0);
      if (this.start[slice] > time + reach) break;
      if (best < 0 || away < distance) [best, distance] = [slice, away];
    }
    return best;
  }

  // For each name what of it is in a window: count, time inside, and the longest.
  namesIn(low, high) {
    const sums = new Map();
    const until = upperBound(this.start, high);
    for (let i = 0; i < until; i += 1) {
      const end = this.end(i);
      if (end < low) continue;
      const inside = Math.min(end, high) - Math.max(this.start[i], low);
      let sum = sums.get(this.nameOf[i]);
      if (!sum)
        sums.set(this.nameOf[i], (sum = { name: this.nameOf[i], count: 0, time: 0, most: 0 }));
      sum.count += 1;
      sum.time += inside;
      if (this.duration[i] > sum.most) sum.most = this.duration[i];
    }
    return [...sums.values()].sort((a, b) => b.time - a.time);
  }

  // Marks of names with a text in them, and how many slices have one; null for no text.
  matches(text) {
    const words = text.trim().toLowerCase();
    if (!words) return null;
    const marks = Uint8Array.from(this.names, (name) =>
      name.toLowerCase().includes(words) ? 1 : 0,
    );
    let count = 0;
    for (let i = 0; i < this.count; i += 1) count += marks[this.nameOf[i]];
    return { marks, count };
  }

  // The arrows that begin or end in a slice.
  arrowsOf(slice) {
    const {
      arrow_from_time: from,
      arrow_from_track: out,
      arrow_to_time: to,
      arrow_to_track: into,
    } = this.columns;
    const track = this.trackOf(slice);
    const isIn = (time, of) => of === track && time >= this.start[slice] && time <= this.end(slice);
    const found = [];
    for (let i = 0; i < from.length; i += 1) {
      if (isIn(from[i], out[i]) || isIn(to[i], into[i])) found.push(i);
    }
    return found;
  }
}
