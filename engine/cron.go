package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/netresearch/go-cron"

	"github.com/gopherqueue/gq"
)

// slots are the instants at which a schedule fires.
type slots interface {
	// next is the first slot after an instant, zero if there is none.
	next(after time.Time) time.Time
}

// slotsOf reads the calendar or interval of a schedule and reports everything
// that is wrong with it.
func slotsOf(s *gq.Schedule) (slots, []gq.Fault) {
	if s.Cron == "" {
		return interval{s.Start, s.Every}, nil
	}
	zone, faults := zoneOf(s.TimeZone)
	c, more := parseCron(s.Cron)
	if faults = append(faults, more...); len(faults) > 0 {
		return nil, faults
	}
	c.zone = zone
	return c, nil
}

func zoneOf(name string) (*time.Location, []gq.Fault) {
	if name == "Local" {
		return nil, []gq.Fault{{Field: "time_zone", Problem: "name the zone, so that every process means the same"}}
	}
	zone, err := time.LoadLocation(name) // "" is UTC
	if err != nil {
		return nil, []gq.Fault{{Field: "time_zone", Problem: fmt.Sprintf("%.80q is not a time zone known here, such as Europe/Berlin", name)}}
	}
	return zone, nil
}

// interval has a slot every so often from a start on.
type interval struct {
	start time.Time
	every time.Duration
}

func (i interval) next(after time.Time) time.Time {
	if after.Before(i.start) {
		return i.start
	}
	n := int64(after.Sub(i.start)/i.every) + 1
	return i.start.Add(time.Duration(n * int64(i.every)))
}

// cronFields are the fields of a calendar, in the order of an expression with seconds.
var cronFields = [...]string{"second", "minute", "hour", "day of month", "month", "day of week"}

// crontab is a calendar in a time zone.
type crontab struct {
	fields cron.SpecSchedule
	zone   *time.Location
	hourly bool // for every hour: goes by real hours
}

// The classic five fields, or six with the seconds first. Days are joined by or,
// as in every cron.
var cronParser = cron.MustNewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom).
	WithMaxSearchYears(10)

// parseCron reads an expression and names each field that is wrong.
func parseCron(expression string) (*crontab, []gq.Fault) {
	fault := func(format string, args ...any) []gq.Fault {
		return []gq.Fault{{Field: "cron", Problem: fmt.Sprintf(format, args...)}}
	}
	expression = strings.TrimSpace(expression)
	fields := strings.Fields(expression)
	switch {
	case len(expression) > gq.MaxNameBytes:
		return nil, fault("%d bytes are more than %d", len(expression), gq.MaxNameBytes)
	case strings.HasPrefix(expression, "@every"):
		return nil, fault("%.80q is an interval: set every instead", expression)
	case strings.Contains(expression, "TZ="):
		return nil, fault("the time zone is a setting of its own: set time_zone")
	case strings.HasPrefix(expression, "@"):
		return compileCron(expression, fault)
	case len(fields) == 5:
		fields = append([]string{"0"}, fields...)
	case len(fields) != 6:
		return nil, fault("%.80q has %d fields; a calendar has five (minute, hour, day of month, month, day of week) or six with the second first", expression, len(fields))
	}
	var faults []gq.Fault
	for i, field := range fields {
		if slices.Contains(strings.Split(field, ","), "") { // the parser overlooks it
			faults = append(faults, fault("the %s %.80q: an entry of the list is empty", cronFields[i], field)...)
			continue
		}
		alone := [...]string{"*", "*", "*", "*", "*", "*"}
		alone[i] = field
		if _, err := cronParser.Parse(strings.Join(alone[:], " ")); err != nil {
			faults = append(faults, fault("the %s %.80q: %v", cronFields[i], field, err)...)
		}
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return compileCron(strings.Join(fields, " "), fault)
}

func compileCron(expression string, fault func(string, ...any) []gq.Fault) (*crontab, []gq.Fault) {
	parsed, err := cronParser.Parse(expression)
	if err != nil {
		return nil, fault("%.80q: %v", expression, err)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, fault("%.80q is not a calendar", expression)
	}
	const everyHour = 1<<24 - 1
	c := &crontab{fields: *spec, zone: time.UTC, hourly: spec.Hour&everyHour == everyHour}
	c.fields.Location = time.Local // the parser's word for "that of the argument"
	if c.next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fault("%.80q names a day that never comes", expression)
	}
	return c, nil
}

// next goes through the stretches of time in which the zone's offset stands
// still. Within one of them a calendar is plain; between two of them there is a
// gap or an overlap of wall-clock times:
//
//   - What falls into a gap fires at its end, together and once.
//   - What falls into an overlap fires before the clocks go back, not again.
//   - A calendar for every hour knows neither: it goes by real hours.
func (c *crontab) next(after time.Time) time.Time {
	at := after.Truncate(time.Second).Add(time.Second) // the first instant that may be it
	for range 100 {
		begin, end := at.In(c.zone).ZoneBounds()
		offset := c.offset(at)
		if overlap := c.offset(begin.Add(-1)) - offset; overlap > 0 && !c.hourly && !begin.IsZero() && at.Before(begin.Add(overlap)) {
			at = begin.Add(overlap)
			continue
		}
		found := c.behind(at, offset)
		if found.IsZero() || end.IsZero() || found.Before(end) {
			return found
		}
		gap := c.offset(end) - offset
		if gap > 0 && !c.hourly && c.behind(end, offset).Before(end.Add(gap)) {
			return end.UTC()
		}
		at = end
	}
	return time.Time{}
}

// offset is how far the zone is ahead of UTC at an instant.
func (c *crontab) offset(at time.Time) time.Duration {
	_, seconds := at.In(c.zone).Zone()
	return time.Duration(seconds) * time.Second
}

// behind is the first match at or after an instant, under an offset that stands
// still.
func (c *crontab) behind(at time.Time, offset time.Duration) time.Time {
	found := c.fields.Next(at.Add(-1).In(time.FixedZone("", int(offset/time.Second))))
	if found.IsZero() {
		return found
	}
	return found.UTC()
}
