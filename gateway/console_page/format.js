// Numbers, times and money as people read them. What is not known is a dash.

export const UNKNOWN = "–";
const SPACE = "\u202f"; // narrow, and no line breaks there

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const utc = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", timeZone: "UTC" });

export const count = (number) => (number < 10_000 ? whole.format(number) : compact.format(number));
export const rate = (number) => (number > 0 && number < 9.95 ? number.toFixed(1) : count(number));

/** Seconds as [number, unit]. */
export function timeParts(seconds) {
  if (seconds === null || seconds === undefined) return [UNKNOWN, ""];
  if (seconds < 0.00995) return [(seconds * 1000).toFixed(1), "ms"];
  if (seconds < 0.9995) return [(seconds * 1000).toFixed(0), "ms"];
  return [seconds.toFixed(seconds < 9.995 ? 2 : 1), "s"];
}

export const time = (seconds) => timeParts(seconds).join(SPACE).trim();

/** A share (0 to 1) in percent. */
export function percent(share) {
  if (!share) return `0${SPACE}%`;
  if (share < 0.001) return `<${SPACE}0.1${SPACE}%`;
  return `${share < 0.0995 ? (share * 100).toFixed(1) : Math.round(share * 100)}${SPACE}%`;
}

export function money(usd) {
  if (usd > 0 && usd < 0.0001) return "< $0.0001";
  return `$${usd > 0 && usd < 0.1 ? usd.toFixed(4) : usd.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}

/** Moments are in Unix seconds. */
export const date = (moment) => day.format(moment * 1000);
export const timeOfDay = (moment) => clock.format(moment * 1000);
export const utcTime = (moment) => `${utc.format(moment * 1000)} UTC`;

export function ago(moment, now = Date.now() / 1000) {
  if (moment === null) return "never";
  const minutes = (now - moment) / 60;
  if (minutes < 3) return "just now"; // it is noted only every minute or two
  if (minutes < 60) return `${Math.floor(minutes)} min ago`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ago`;
  return `${Math.floor(minutes / 1440)} days ago`;
}
