package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/netresearch/go-cron"

	"github.com/gopherqueue/gq"
)

// firingTimes are the times at which a schedule fires.
type firingTimes interface {
	// next returns the first firing time after a time; zero if there is none.
	next(after time.Time) time.Time
}

// firingTimesOf parses the cron expression or interval of a schedule and reports all faults.
func firingTimesOf(s *gq.Schedule) (firingTimes, []gq.Fault) {
	if s.Cron == "" {
		return ending(interval{s.Start, s.Every}, s.End), nil
	}
	zone, faults := zoneOf(s.TimeZone)
	c, more := parseCron(s.Cron)
	if faults = append(faults, more...); len(faults) > 0 {
		return nil, faults
	}
	c.zone = zone
	return ending(c, s.End), nil
}

// ending limits firing times to those up to a time; zero is no limit.
func ending(times firingTimes, end time.Time) firingTimes {
	if end.IsZero() {
		return times
	}
	return finite{times, end}
}

type finite struct {
	times firingTimes
	end   time.Time
}

func (f finite) next(after time.Time) time.Time {
	if at := f.times.next(after); !at.After(f.end) {
		return at
	}
	return time.Time{}
}

func zoneOf(name string) (*time.Location, []gq.Fault) {
	if name == "Local" {
		return nil, []gq.Fault{{Field: "time_zone", Problem: "Local differs between processes; name a zone such as Europe/Berlin"}}
	}
	zone, err := time.LoadLocation(name) // "" is UTC
	if err != nil {
		return nil, []gq.Fault{{Field: "time_zone", Problem: fmt.Sprintf("unknown time zone %.80q; use a name such as Europe/Berlin", name)}}
	}
	return zone, nil
}

// interval fires at regular intervals from a start.
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

// cronFields are the fields of a cron expression with seconds, in order.
var cronFields = [...]string{"second", "minute", "hour", "day of month", "month", "day of week"}

// crontab is a cron expression in a time zone.
type crontab struct {
	fields cron.SpecSchedule
	zone   *time.Location
	hourly bool // fires in every hour, regardless of clock changes
}

// cronParser accepts five fields, or six with seconds first. If both day fields are restricted,
// either of them matches, as in cron.
var cronParser = cron.MustNewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom).
	WithMaxSearchYears(10)

// parseCron parses an expression and reports each invalid field.
func parseCron(expression string) (*crontab, []gq.Fault) {
	fault := func(format string, args ...any) []gq.Fault {
		return []gq.Fault{{Field: "cron", Problem: fmt.Sprintf(format, args...)}}
	}
	expression = strings.TrimSpace(expression)
	fields := strings.Fields(expression)
	switch {
	case len(expression) > gq.MaxNameBytes:
		return nil, fault("has %d bytes; the limit is %d", len(expression), gq.MaxNameBytes)
	case strings.HasPrefix(expression, "@every"):
		return nil, fault("%.80q is an interval; set every instead", expression)
	case strings.Contains(expression, "TZ="):
		return nil, fault("cannot contain a time zone; set time_zone instead")
	case strings.HasPrefix(expression, "@"):
		return compileCron(expression, expression, fault)
	case len(fields) == 5:
		fields = append([]string{"0"}, fields...)
	case len(fields) != 6:
		return nil, fault("%.80q has %d fields; a cron expression has five (minute, hour, day of month, month, day of week) or six with seconds first", expression, len(fields))
	}
	var faults []gq.Fault
	for i, field := range fields {
		if slices.Contains(strings.Split(field, ","), "") { // the parser accepts it
			faults = append(faults, fault("the %s %.80q has an empty list entry", cronFields[i], field)...)
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
	return compileCron(strings.Join(fields, " "), expression, fault)
}

// compileCron parses an expression with seconds. Faults name it as it was given.
func compileCron(expression, given string, fault func(string, ...any) []gq.Fault) (*crontab, []gq.Fault) {
	parsed, err := cronParser.Parse(expression)
	if err != nil {
		return nil, fault("%.80q: %v", given, err)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, fault("%.80q is not a cron expression", given)
	}
	const everyHour = 1<<24 - 1
	c := &crontab{fields: *spec, zone: time.UTC, hourly: spec.Hour&everyHour == everyHour}
	c.fields.Location = time.Local // for the parser this means the location of the argument
	if c.next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fault("%.80q never fires", given)
	}
	return c, nil
}

// next goes through the periods in which the offset of the time zone is constant. Between two
// of them there is a gap or an overlap of wall-clock times:
//
//   - Times in a gap fire once, at its end.
//   - Times in an overlap fire before the clocks go back and not again.
//   - Hourly expressions ignore both and fire every real hour.
func (c *crontab) next(after time.Time) time.Time {
	at := after.Truncate(time.Second).Add(time.Second) // the first candidate
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

// offset returns how far the zone is ahead of UTC.
func (c *crontab) offset(at time.Time) time.Duration {
	_, seconds := at.In(c.zone).Zone()
	return time.Duration(seconds) * time.Second
}

// behind returns the first match at or after a time, with a constant offset.
func (c *crontab) behind(at time.Time, offset time.Duration) time.Time {
	found := c.fields.Next(at.Add(-1).In(time.FixedZone("", int(offset/time.Second))))
	if found.IsZero() {
		return found
	}
	return found.UTC()
}
