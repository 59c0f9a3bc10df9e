package machine_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
)

func TestMissedNames(t *testing.T) {
	checkNames(t, []gq.MissedRule{gq.MissedOnce, gq.MissedSkip, gq.MissedAll}, enum.Parse[gq.MissedRule], "once", "skip", "all")
}

func TestScheduleValidate(t *testing.T) {
	sound := func() gq.Schedule {
		return gq.Schedule{Name: "nightly", Cron: "0 0 * * *", Missed: gq.MissedOnce, Overlap: gq.OverlapAllow, Template: gq.Spec{Type: "t"}}
	}
	limits := machine.DefaultLimits()
	if s := sound(); machine.CheckSchedule(&s, limits) != nil {
		t.Errorf("a sound schedule: %v", machine.CheckSchedule(&s, limits))
	}
	for field, change := range map[string]func(*gq.Schedule){
		"name":                     func(s *gq.Schedule) { s.Name = strings.Repeat("x", gq.MaxScheduleBytes+1) },
		"cron":                     func(s *gq.Schedule) { s.Cron = "" },
		"every":                    func(s *gq.Schedule) { s.Cron, s.Every = "", gq.MinInterval-1 },
		"time_zone":                func(s *gq.Schedule) { s.Cron, s.Every, s.TimeZone = "", time.Hour, "Europe/Berlin" },
		"start":                    func(s *gq.Schedule) { s.Start = time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"end":                      func(s *gq.Schedule) { s.Start, s.End = time.Unix(2, 0), time.Unix(1, 0) },
		"jitter":                   func(s *gq.Schedule) { s.Jitter = -1 },
		"overlap":                  func(s *gq.Schedule) { s.Overlap = 0 },
		"missed":                   func(s *gq.Schedule) { s.Missed = 0 },
		"missed_limit":             func(s *gq.Schedule) { s.MissedLimit = gq.MaxMissedFirings + 1 },
		"template.id":              func(s *gq.Schedule) { s.Template.ID = machine.NewJobID([16]byte{1}) },
		"template.idempotency_key": func(s *gq.Schedule) { s.Template.Key.Name = "k" },
		"template.replaces":        func(s *gq.Schedule) { s.Template.Replaces = machine.NewJobID([16]byte{1}) },
		"template.replay_of":       func(s *gq.Schedule) { s.Template.ReplayOf = machine.NewJobID([16]byte{1}) },
		"template.run_at":          func(s *gq.Schedule) { s.Template.RunAt = time.Unix(1, 0) },
		"template.depends_on":      func(s *gq.Schedule) { s.Template.DependsOn = []gq.Dependency{{}} },
		"template.payload":         func(s *gq.Schedule) { s.Template.Payload.Data = make([]byte, limits.PayloadBytes+1) },
		"template.cost_units":      func(s *gq.Schedule) { s.Template.CostUnits = -1 },
		"template.attributes":      func(s *gq.Schedule) { s.Template.Attributes = attributes(gq.MaxAttributes - 1) },
	} {
		s := sound()
		change(&s)
		var found []string
		for _, f := range errs.FaultsOf(machine.CheckSchedule(&s, limits)) {
			found = append(found, f.Field)
		}
		if !slices.Equal(found, []string{field}) {
			t.Errorf("%s: faults of %v", field, found)
		}
	}
}

// One mistake is one fault.
func TestScheduleFaultsOnce(t *testing.T) {
	for field, s := range map[string]gq.Schedule{
		"name":  {Name: strings.Repeat("x", gq.MaxNameBytes+1), Every: time.Hour},
		"every": {Name: "s", Every: -time.Hour},
	} {
		s.Missed, s.Overlap, s.Template = gq.MissedOnce, gq.OverlapAllow, gq.Spec{Type: "t"}
		faults := errs.FaultsOf(machine.CheckSchedule(&s, machine.DefaultLimits()))
		if len(faults) != 1 || faults[0].Field != field {
			t.Errorf("%s: %+v", field, faults)
		}
	}
}

func attributes(n int) map[string]string {
	all := make(map[string]string, n)
	for i := range n {
		all[strings.Repeat("a", i+1)] = ""
	}
	return all
}

// A placeholder that would reach the handler as it stands is refused.
func TestPlaceholders(t *testing.T) {
	for _, c := range []struct{ contentType, payload, problem string }{
		{gq.JSON, `{"at":"{{slot}}","day":"{{slot_date}}"}`, ""},
		{gq.JSON, `{"at":"{{slot_time}}"}`, "{{slot_time}} is not a placeholder; use {{slot}}"},
		{gq.JSON, `{"at":"{{slots}}"}`, "{{slots}} is not a placeholder"},
		{gq.JSON, `{"at":"{{ slot }}"}`, "{{ slot }} is not a placeholder"},
		{gq.JSON, `{"at":"{{SLOT}}"}`, "{{SLOT}} is not a placeholder"},
		{gq.JSON, `{"at":"x {{foo}}"}`, "{{foo}} is not a placeholder"},
		{gq.JSON, `{"at":"{{.Slot}}"}`, "{{.Slot}} is not a placeholder"},
		{gq.JSON, `{"at":"\u007b{foo}}","a":"{{","b":"}}","c":{"d":{}}}`, ""},
		{"text/plain", `{{ slot }}`, "{{ slot }} is replaced only in JSON"},
		{"text/plain", `Dear {{name}}`, ""},
		{"text/plain", `{"at":{{slot}}}`, "{{slot}} is replaced only in JSON, and the content_type is text/plain; write the payload as JSON"},
		{gq.OctetStream, `{{slot}}`, ""},
	} {
		s := gq.Schedule{Name: "s", Every: time.Hour, Missed: gq.MissedOnce, Overlap: gq.OverlapAllow, Template: gq.Spec{
			Type: "t", Payload: gq.Payload{ContentType: c.contentType, Data: []byte(c.payload)},
		}}
		faults := errs.FaultsOf(machine.CheckSchedule(&s, machine.DefaultLimits()))
		switch {
		case c.problem == "" && len(faults) > 0:
			t.Errorf("%s %s: %v", c.contentType, c.payload, faults)
		case c.problem != "" && (len(faults) != 1 || faults[0].Field != "template.payload" || !strings.HasPrefix(faults[0].Problem, c.problem)):
			t.Errorf("%s %s: %v", c.contentType, c.payload, faults)
		}
	}
}
