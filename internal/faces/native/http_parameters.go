package native

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/view"
)

// parameters parses parameters and collects their faults.
type parameters struct{ faults []gq.Fault }

func (p *parameters) fault(field, format string, args ...any) {
	p.faults = append(p.faults, gq.Fault{Field: field, Problem: fmt.Sprintf(format, args...)})
}

func (p *parameters) err() error {
	if len(p.faults) == 0 {
		return nil
	}
	return &gq.InvalidError{Faults: p.faults}
}

func (p *parameters) jobID(text string) gq.JobID {
	id, err := gq.ParseJobID(text)
	p.faults = append(p.faults, errs.FaultsOf(err)...)
	return id
}

func (p *parameters) count(field string, text countText, most int) int {
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(string(text))
	if err != nil || n < 1 || n > most {
		p.fault(field, "%.64q is not a number from 1 to %d", string(text), most)
	}
	return n
}

func (p *parameters) duration(field string, text durationText, most time.Duration) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(string(text))
	if err != nil {
		p.fault(field, `%.64q is not a duration such as "30s"`, string(text))
	} else if d < 0 || d > most {
		p.fault(field, "%v is not between 0s and %v", d, most)
	}
	return d
}

func (p *parameters) instant(field string, text instantText) time.Time {
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		p.fault(field, `%.64q is not an instant such as "2030-01-31T12:00:00Z"`, string(text))
	}
	return t.UTC()
}

func (p *parameters) boolean(field string, text boolText, otherwise bool) bool {
	switch text {
	case "":
		return otherwise
	case "true", "false":
		return text == "true"
	}
	p.fault(field, "%.64q is not true or false", string(text))
	return false
}

// split returns the values of a parameter that may be repeated or comma-separated.
func split[T ~string](given []T) (all []string) {
	for _, text := range given {
		all = append(all, strings.Split(string(text), ",")...)
	}
	return all
}

func (p *parameters) statuses(given []stateText) (all []gq.Status) {
	for _, name := range split(given) {
		s, err := enum.Parse[gq.Status](name)
		p.faults = append(p.faults, errs.FaultsOf(err)...)
		all = append(all, s)
	}
	return all
}

// view returns the view that is asked for, nil for none.
func (p *parameters) view(name *viewText) *view.View {
	switch {
	case name == nil:
		return nil
	case *name == "":
		p.fault("view", `"" is not one of %v`, view.Names())
		return nil
	}
	v, err := view.Named(string(*name))
	p.faults = append(p.faults, errs.FaultsOf(err)...)
	return v
}

// tags parses the labels that jobs must have, each as name=value.
func (p *parameters) tags(given []string) (tags map[string]string) {
	for _, text := range given {
		name, value, ok := strings.Cut(text, "=")
		if _, twice := tags[name]; !ok || name == "" {
			p.fault("tag", "%.64q is not name=value", text)
		} else if twice {
			p.fault("tag", "%.64q is asked for with two values", name)
		}
		if tags == nil {
			tags = map[string]string{}
		}
		tags[name] = value
	}
	return tags
}
