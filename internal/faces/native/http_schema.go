package native

import (
	"reflect"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/view"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/view/jobmodel"
	"github.com/gopherqueue/gq/view/semantics"
)

// Parameters are parsed as text, so that all faults are reported in one format; these
// types give them their schemas.
type (
	countText    string
	durationText string
	instantText  string
	boolText     string
	orderText    string
	afterText    string
	stateText    string
	eventText    string
	viewText     string
)

// newSchemas has the schemas of types that reflection cannot derive.
func newSchemas() *httpx.Schemas {
	zero, one, four := 0.0, 1.0, 4.0
	duration := httpx.Schema{
		Type: "string", Pattern: `^-?([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$|^0$`, Examples: []any{"1h30m0s"},
		Description: "A duration as Go writes it.",
	}
	priority := httpx.Enum(enum.All[gq.Priority]())
	s := httpx.NewSchemas(map[reflect.Type]httpx.Schema{
		reflect.TypeFor[countText]():         {Type: "integer", Minimum: &one},
		reflect.TypeFor[durationText]():      duration,
		reflect.TypeFor[instantText]():       {Type: "string", Format: "date-time"},
		reflect.TypeFor[boolText]():          {Type: "boolean"},
		reflect.TypeFor[orderText]():         {Type: "string", Enum: []string{"newest", "oldest"}},
		reflect.TypeFor[afterText]():         {Type: "integer", Format: "int64"},
		reflect.TypeFor[stateText]():         {Type: "string", Enum: anyState()},
		reflect.TypeFor[viewText]():          {Type: "string", Enum: view.Names()},
		reflect.TypeFor[semantics.State]():   {Type: "string", Enum: view.Semantics.States},
		reflect.TypeFor[jobmodel.State]():    {Type: "string", Enum: view.JobModel.States},
		reflect.TypeFor[eventText]():         httpx.Enum(enum.All[gq.EventType]()),
		reflect.TypeFor[gq.JobID]():          {Type: "string", Format: "uuid"},
		reflect.TypeFor[wire.Duration]():     duration,
		reflect.TypeFor[gq.Priority]():       priority,
		reflect.TypeFor[wire.Priority]():     {OneOf: []*httpx.Schema{&priority, {Type: "integer", Minimum: &zero, Maximum: &four}}},
		reflect.TypeFor[gq.Status]():         httpx.Enum(enum.All[gq.Status]()),
		reflect.TypeFor[gq.EventType]():      httpx.Enum(enum.All[gq.EventType]()),
		reflect.TypeFor[gq.Cause]():          httpx.Enum(enum.All[gq.Cause]()),
		reflect.TypeFor[gq.DependencyKind](): httpx.Enum(enum.All[gq.DependencyKind]()),
		reflect.TypeFor[gq.Category]():       httpx.Enum(enum.All[gq.Category]()),
		reflect.TypeFor[gq.Preset]():         httpx.Enum(enum.All[gq.Preset]()),
		reflect.TypeFor[gq.Strategy]():       httpx.Enum(enum.All[gq.Strategy]()),
		reflect.TypeFor[gq.Jitter]():         httpx.Enum(enum.All[gq.Jitter]()),
		reflect.TypeFor[wire.LossRule]():     {Type: "string", Enum: wire.Names(gq.LossRule.String)},
		reflect.TypeFor[wire.Extend]():       {Type: "string", Enum: wire.Names(gq.ExtendMode.String)},
		reflect.TypeFor[gq.MissedRule]():     {Type: "string", Enum: wire.Names(gq.MissedRule.String)},
	})
	s.Form(reflect.TypeFor[wire.BatchAnswer](), httpx.Schema{OneOf: []*httpx.Schema{
		s.Of(reflect.TypeFor[wire.Submitted]()), s.Of(reflect.TypeFor[wire.Refused]()),
	}})
	s.Of(reflect.TypeFor[wire.Job]()) // before those of the views, which have the same names
	s.Of(reflect.TypeFor[wire.Event]())
	return s
}

// anyState lists the states of all views.
func anyState() (all []string) {
	for _, s := range enum.All[gq.Status]() {
		all = append(all, s.String())
	}
	return append(all, view.Semantics.States...) // those of the job model are all among the statuses
}
