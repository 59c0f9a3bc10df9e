package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
)

func TestCronFaults(t *testing.T) {
	for _, test := range []struct {
		cron, zone string
		want       []string // parts of faults
	}{
		{"", "", []string{}},
		{"* * * *", "", []string{"cron: \"* * * *\" has 4 fields"}},
		{"* * * * * * *", "", []string{"has 7 fields"}},
		{"60 * * * *", "", []string{`the minute "60"`}},
		{"0 24 * * *", "", []string{`the hour "24"`}},
		{"0 0 32 * *", "", []string{`the day of month "32"`}},
		{"0 0 0 * *", "", []string{`the day of month "0"`}},
		{"0 0 * 13 *", "", []string{`the month "13"`}},
		{"0 0 * * 9", "", []string{`the day of week "9"`}},
		{"0 0 * * MONDAY", "", []string{`the day of week "MONDAY"`}},
		{"61 0 0 * * *", "", []string{`the second "61"`}},
		{"a b c d e", "", []string{`the minute "a"`, `the hour "b"`, `the day of month "c"`, `the month "d"`, `the day of week "e"`}},
		{"*/0 * * * *", "", []string{`the minute "*/0"`}},
		{"1-2-3 * * * *", "", []string{`the minute "1-2-3"`}},
		{"-1 * * * *", "", []string{`the minute "-1"`}},
		{"1,, * * * *", "", []string{`the minute "1,,"`}},
		{"99999999999999999999 * * * *", "", []string{`the minute "9999`}},
		{"0 0 30 2 *", "", []string{`"0 0 30 2 *" never fires`}},
		{"@never", "", []string{`"@never"`}},
		{"@every 5m", "", []string{"is an interval; set every"}},
		{"TZ=Europe/Berlin 0 0 * * *", "", []string{"set time_zone"}},
		{"CRON_TZ=Europe/Berlin 0 0 * * *", "", []string{"set time_zone"}},
		{"0 0 * * *", "Mars/Olympus", []string{"time_zone: unknown time zone \"Mars/Olympus\""}},
		{"0 0 * * *", "Local", []string{"time_zone: Local differs"}},
		{"0 0 * *", "../etc/passwd", []string{"time_zone:", "has 4 fields"}},
		{strings.Repeat("1,", 5000) + "1 * * * *", "", []string{"bytes; the limit is"}},
		{"\x00 * * * *", "", []string{"the minute"}},
	} {
		if test.cron == "" {
			continue // an interval
		}
		_, faults := firingTimesOf(&gq.Schedule{Cron: test.cron, TimeZone: test.zone})
		var all []string
		for _, f := range faults {
			all = append(all, f.String())
		}
		text := strings.Join(all, "\n")
		for _, want := range test.want {
			if !strings.Contains(text, want) {
				t.Errorf("%.40q in %q: faults %q, want %q", test.cron, test.zone, text, want)
			}
		}
		if len(faults) < len(test.want) {
			t.Errorf("%.40q: %d faults %q, want %d", test.cron, len(faults), text, len(test.want))
		}
	}
}

// TestCronNext is a table of expressions, a time and the next firing times.
func TestCronNext(t *testing.T) {
	for _, test := range []struct {
		name, cron, zone, after string
		want                    string // firing times in the zone, or in UTC
	}{
		{"Minutes", "*/20 * * * *", "", "2026-01-01T00:00:00Z", "2026-01-01T00:20:00Z 2026-01-01T00:40:00Z 2026-01-01T01:00:00Z"},
		{"StrictlyAfter", "0 12 * * *", "", "2026-01-01T12:00:00Z", "2026-01-02T12:00:00Z"},
		{"Inside", "0 12 * * *", "", "2026-01-01T11:59:59.999999999Z", "2026-01-01T12:00:00Z"},
		{"Seconds", "*/30 * * * * *", "", "2026-01-01T00:00:01Z", "2026-01-01T00:00:30Z 2026-01-01T00:01:00Z"},
		{"Sunday", "0 0 * * 7", "", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"},
		{"Names", "0 9 * jan MON-FRI", "", "2026-01-02T10:00:00Z", "2026-01-05T09:00:00Z"},
		{"EitherDay", "0 0 13 * 5", "", "2026-02-01T00:00:00Z", "2026-02-06T00:00:00Z 2026-02-13T00:00:00Z 2026-02-20T00:00:00Z"},
		{"LeapDay", "0 0 29 2 *", "", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"Hourly", "@hourly", "", "2026-01-01T00:30:00Z", "2026-01-01T01:00:00Z"},
		{"Weekly", "@weekly", "", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"},
		{"Zone", "0 9 * * *", "Asia/Tokyo", "2026-01-01T00:00:00Z", "2026-01-02T09:00:00+09:00"},
		{"HalfHourZone", "0 9 * * *", "Asia/Kolkata", "2026-01-01T00:00:00Z", "2026-01-01T09:00:00+05:30"},

		// Europe/Berlin: 2026-03-29 02:00 is 03:00, 2026-10-25 03:00 is 02:00.
		{
			"GapOnce", "30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00+01:00",
			"2026-03-29T03:00:00+02:00 2026-03-30T02:30:00+02:00",
		},
		{
			"GapTogether", "15,45 2 * * *", "Europe/Berlin", "2026-03-29T01:00:00+01:00",
			"2026-03-29T03:00:00+02:00 2026-03-30T02:15:00+02:00",
		},
		{
			"GapEndIsASlotToo", "0 2,3 * * *", "Europe/Berlin", "2026-03-29T01:00:00+01:00",
			"2026-03-29T03:00:00+02:00 2026-03-30T02:00:00+02:00",
		},
		{
			"GapHourly", "30 * * * *", "Europe/Berlin", "2026-03-29T00:45:00+01:00",
			"2026-03-29T01:30:00+01:00 2026-03-29T03:30:00+02:00 2026-03-29T04:30:00+02:00",
		},
		{
			"OverlapOnce", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00+02:00",
			"2026-10-25T02:30:00+02:00 2026-10-26T02:30:00+01:00",
		},
		{"OverlapSecondTime", "30 2 * * *", "Europe/Berlin", "2026-10-25T02:10:00+01:00", "2026-10-26T02:30:00+01:00"},
		{
			"OverlapEdge", "0 2,3 * * *", "Europe/Berlin", "2026-10-25T01:00:00+02:00",
			"2026-10-25T02:00:00+02:00 2026-10-25T03:00:00+01:00",
		},
		{
			"OverlapHourly", "30 * * * *", "Europe/Berlin", "2026-10-25T01:45:00+02:00",
			"2026-10-25T02:30:00+02:00 2026-10-25T02:30:00+01:00 2026-10-25T03:30:00+01:00",
		},
		// Zones where midnight does not exist, and where the clocks change by half an hour.
		{"NoMidnight", "0 0 * * *", "America/Santiago", "2026-09-05T12:00:00-04:00", "2026-09-06T01:00:00-03:00 2026-09-07T00:00:00-03:00"},
		{"HalfHourGap", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00+10:30", "2026-10-04T02:30:00+11:00 2026-10-05T02:15:00+11:00"},
		// Samoa skipped 30 December 2011.
		{"NoDay", "0 12 * * *", "Pacific/Apia", "2011-12-29T13:00:00-10:00", "2011-12-31T00:00:00+14:00 2011-12-31T12:00:00+14:00"},
	} {
		s, faults := firingTimesOf(&gq.Schedule{Cron: test.cron, TimeZone: test.zone})
		if len(faults) > 0 {
			t.Errorf("%s: %v", test.name, faults)
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, test.after)
		if err != nil {
			t.Fatal(err)
		}
		zone, _ := time.LoadLocation(test.zone)
		var got []string
		for range strings.FieldsSeq(test.want) {
			at = s.next(at)
			got = append(got, at.In(zone).Format(time.RFC3339))
		}
		if all := strings.Join(got, " "); all != test.want {
			t.Errorf("%s: %s\nwant %s", test.name, all, test.want)
		}
	}
}

func TestIntervalNext(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC)
	i := interval{start, 7 * time.Second}
	const second = time.Second
	for after, want := range map[time.Duration]time.Duration{
		-time.Hour: 0, -1: 0, 0: 7 * second, 6 * second: 7 * second, 7 * second: 14 * second, 100 * second: 105 * second,
	} {
		if got := i.next(start.Add(after)).Sub(start); got != want {
			t.Errorf("after %v: %v, want %v", after, got, want)
		}
	}
}

func TestDueTimes(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 30, 0, time.UTC)
	hourly, _ := firingTimesOf(&gq.Schedule{Cron: "0 * * * *"})
	secondly, _ := firingTimesOf(&gq.Schedule{Cron: "* * * * * *"})
	yearly, _ := firingTimesOf(&gq.Schedule{Cron: "@yearly"})
	hours := func(n int) time.Time { return now.Truncate(time.Hour).Add(-time.Duration(n) * time.Hour) }
	for _, test := range []struct {
		name   string
		times  firingTimes
		from   time.Time
		missed gq.MissedRule
		limit  int
		count  int
		first  time.Time
		last   time.Time
	}{
		{"OnTime", hourly, hours(0), gq.MissedSkip, 0, 1, hours(0), hours(0)},
		{"SkipKeepsOnTime", hourly, hours(5), gq.MissedSkip, 0, 1, hours(0), hours(0)},
		{"Once", hourly, hours(5), gq.MissedOnce, 0, 2, hours(1), hours(0)},
		{"All", hourly, hours(5), gq.MissedAll, 0, 6, hours(5), hours(0)},
		{"AllLimited", hourly, hours(500), gq.MissedAll, 3, 4, hours(3), hours(0)},
		{"AllByDefault", hourly, hours(5000), gq.MissedAll, 0, 101, hours(100), hours(0)},
		{"YearsOfSeconds", secondly, now.AddDate(-5, 0, 0), gq.MissedOnce, 0, 62, now.Add(-61 * time.Second), now},
		{"YearsOfSecondsSkipped", secondly, now.AddDate(-5, 0, 0), gq.MissedSkip, 0, 61, now.Add(-60 * time.Second), now},
		{"Sparse", yearly, now.AddDate(-3, -5, 0).Truncate(24 * time.Hour), gq.MissedOnce, 0, 1, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		due := dueTimes(test.times, test.from, now, test.missed, test.limit)
		if len(due) != test.count || !due[0].Equal(test.first) || !due[len(due)-1].Equal(test.last) {
			t.Errorf("%s: %d times %v; want %d from %v to %v", test.name, len(due), due[:min(len(due), 4)], test.count, test.first, test.last)
		}
	}
}

// FuzzCron: parsing any expression ends, and the firing times of an accepted one increase.
func FuzzCron(f *testing.F) {
	for _, s := range []string{"* * * * *", "*/5 1-3 1,15 jan-mar MON", "@daily", "0 0 31 2 *", "1/2 * * * * *", "? ? ? ? ?", "H * * * *", "0 0 L * *", "0 0 * * 5#3"} {
		f.Add(s, int64(1_790_000_000))
	}
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, expression string, at int64) {
		c, faults := parseCron(expression)
		if len(faults) > 0 {
			return
		}
		c.zone = zone
		from := time.Unix(at%4_000_000_000, 0)
		for range 3 {
			next := c.next(from)
			if next.IsZero() {
				return
			}
			if !next.After(from) || next.Nanosecond() != 0 {
				t.Fatalf("%q after %v: %v", expression, from, next)
			}
			from = next
		}
	})
}
