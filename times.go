package ckptsidecar

import (
	"bytes"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// TimeLayout is RFC 3339 in UTC with milliseconds. Times are written only in this form, on the wire
// and in the database. It sorts as text.
const TimeLayout = "2006-01-02T15:04:05.000Z"

// Time is a moment, written as TimeLayout. The zero Time is null.
type Time struct{ time.Time }

// At returns t rounded down to the precision of TimeLayout.
func At(t time.Time) Time { return Time{t.UTC().Truncate(time.Millisecond)} }

// ParseTime reads RFC 3339 with any precision and time zone.
func ParseTime(s string) (Time, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return Time{}, fmt.Errorf("%q is not an RFC 3339 time", s)
	}
	return At(t), nil
}

// String returns the written form, or "" for the zero Time.
func (t Time) String() string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(TimeLayout)
}

// MarshalJSON writes TimeLayout or null.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return []byte(`"` + t.String() + `"`), nil
}

// UnmarshalJSON reads what MarshalJSON writes, and any RFC 3339 time.
func (t *Time) UnmarshalJSON(b []byte) error {
	var s *string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("a time must be a string in RFC 3339 form")
	}
	if s == nil {
		*t = Time{}
		return nil
	}
	var err error
	*t, err = ParseTime(*s)
	return err
}

// Value stores the written form, NULL for the zero Time.
func (t Time) Value() (driver.Value, error) {
	if t.IsZero() {
		return nil, nil
	}
	return t.String(), nil
}

// Scan reads a stored time.
func (t *Time) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*t = Time{}
		return nil
	case string:
		var err error
		*t, err = ParseTime(v)
		return err
	}
	return fmt.Errorf("a stored time is %T, not text", v)
}

// Duration is a length of time, written like "7d", "36h" or "1m30s". A number without a unit is
// refused: it would be taken for another unit than its writer meant.
type Duration time.Duration

// Day is 24 hours.
const Day = 24 * time.Hour

// ParseDuration reads a Go duration that may also count days: "7d", "1d12h".
func ParseDuration(s string) (Duration, error) {
	bad := fmt.Errorf("%q is not a duration: give for example 30s, 15m, 12h or 7d", s)
	if s != "" && strings.Trim(s[len(s)-1:], "0123456789") == "" {
		return 0, fmt.Errorf("%q has no unit: give for example 30s, 15m, 12h or 7d", s)
	}
	var days time.Duration
	rest := s
	if head, tail, found := strings.Cut(s, "d"); found {
		n, err := strconv.ParseInt(head, 10, 32)
		if err != nil || n > 1e5 || n < -1e5 {
			return 0, bad
		}
		days, rest = time.Duration(n)*Day, tail
	}
	if rest == "" && rest != s {
		return Duration(days), nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil {
		return 0, bad
	}
	return Duration(days + d), nil
}

// String returns the written form, without units that are zero.
func (d Duration) String() string {
	t := time.Duration(d)
	if t != 0 && t%Day == 0 {
		return strconv.FormatInt(int64(t/Day), 10) + "d"
	}
	s := t.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// MarshalJSON writes the string form.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// Form says what is read as a Duration.
func (Duration) Form() string {
	return `a duration, which is a string with a unit, such as "30s", "15m", "12h" or "7d"`
}

// UnmarshalJSON reads the string form.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil || bytes.Equal(bytes.TrimSpace(b), []byte("null")) {
		return fmt.Errorf("expected %s", Duration(0).Form())
	}
	return d.UnmarshalText([]byte(s))
}

// UnmarshalText reads the string form; configuration files use it. If the text is invalid, d stays
// unchanged.
func (d *Duration) UnmarshalText(b []byte) error {
	read, err := ParseDuration(string(b))
	if err == nil {
		*d = read
	}
	return err
}

// Age returns a duration in its two largest units, for people.
func Age(d time.Duration) string {
	switch {
	case d < time.Second:
		return "under a second"
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < Day:
		return two(d, time.Hour, "h", time.Minute, "min")
	}
	return two(d, Day, "d", time.Hour, "h")
}

func two(d, large time.Duration, l string, small time.Duration, s string) string {
	out := fmt.Sprintf("%d %s", d/large, l)
	if rest := d % large / small; rest > 0 {
		out += fmt.Sprintf(" %d %s", rest, s)
	}
	return out
}
