// Numbers as people read them. Those with a unit come as [number, unit].

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const GIB = 1024 ** 3;

export function count(value) {
  return whole.format(value);
}

export function rate(value) {
  return value > 0 && value < 9.95 ? value.toFixed(1) : whole.format(value);
}

export function percent(share) {
  const value = share * 100;
  if (value > 0 && value < 0.05) return "<0.1";
  return value > 0 && value < 9.95 ? value.toFixed(1) : whole.format(value);
}

export function seconds(value) {
  if (value >= 99.5) return [whole.format(value), "s"];
  if (value >= 0.9995) return [value.toPrecision(3), "s"];
  const ms = value * 1000;
  if (ms < 9.95) return [ms.toFixed(1), "ms"];
  return [whole.format(ms), "ms"];
}

export function bytes(value) {
  if (value >= GIB) return `${(value / GIB).toFixed(2)} GiB`;
  if (value >= 1024 ** 2) return `${(value / 1024 ** 2).toFixed(1)} MiB`;
  return `${count(value)} bytes`;
}

export function duration(value) {
  const total = Math.max(0, Math.round(value));
  const [days, hours] = [Math.floor(total / 86400), Math.floor((total % 86400) / 3600)];
  const [minutes, rest] = [Math.floor((total % 3600) / 60), total % 60];
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  if (minutes) return rest ? `${minutes} min ${rest} s` : `${minutes} min`;
  return `${rest} s`;
}

export function clock(time) {
  return new Date(time * 1000).toLocaleTimeString("en-GB");
}

export function plural(number, one, many) {
  return `${count(number)} ${number === 1 ? one : many}`;
}
