package native

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/openapi"
	"github.com/gopherqueue/gq/internal/wire"
)

// Parameters are read as text, so that what is wrong with them is told in one
// form; these types are how they are described.
type (
	countText    string
	durationText string
	instantText  string
	boolText     string
	stateTexts   string
	typeTexts    string
	tagTexts     string
	orderText    string
)

func (countText) Schema(huma.Registry) *huma.Schema {
	least := 1.0
	return &huma.Schema{Type: huma.TypeInteger, Minimum: &least}
}

func (durationText) Schema(huma.Registry) *huma.Schema { return durationSchema() }

func (instantText) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "date-time"}
}

func (boolText) Schema(huma.Registry) *huma.Schema { return &huma.Schema{Type: huma.TypeBoolean} }

func (stateTexts) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeArray, Items: enumSchema(names(enum.All[gq.Status]()))}
}

func (typeTexts) Schema(huma.Registry) *huma.Schema { return textsSchema() }
func (tagTexts) Schema(huma.Registry) *huma.Schema  { return textsSchema() }

func textsSchema() *huma.Schema {
	return &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString}}
}

func (orderText) Schema(huma.Registry) *huma.Schema {
	return enumSchema([]string{"newest", "oldest"})
}

func durationSchema() *huma.Schema {
	return &huma.Schema{
		Type: huma.TypeString, Pattern: `^-?([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$|^0$`, Examples: []any{"1h30m0s"},
		Description: "A duration as Go writes it.",
	}
}

func enumSchema(values []string) *huma.Schema {
	all := make([]any, len(values))
	for i, v := range values {
		all[i] = v
	}
	return &huma.Schema{Type: huma.TypeString, Enum: all}
}

func names[T interface{ String() string }](values []T) (all []string) {
	for _, v := range values {
		all = append(all, v.String())
	}
	return all
}

// Stand-ins for types whose form their Go type does not tell.
type (
	jobIDForm       struct{}
	durationForm    struct{}
	priorityForm    struct{}
	priorityInForm  struct{}
	statusForm      struct{}
	eventTypeForm   struct{}
	causeForm       struct{}
	kindForm        struct{}
	categoryForm    struct{}
	presetForm      struct{}
	strategyForm    struct{}
	jitterForm      struct{}
	lossForm        struct{}
	extendForm      struct{}
	missedForm      struct{}
	batchAnswerForm struct{}
)

func (jobIDForm) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "uuid"}
}
func (durationForm) Schema(huma.Registry) *huma.Schema { return durationSchema() }
func (priorityForm) Schema(huma.Registry) *huma.Schema {
	return enumSchema(names(enum.All[gq.Priority]()))
}

func (priorityInForm) Schema(huma.Registry) *huma.Schema {
	least, most := 0.0, 4.0
	return &huma.Schema{OneOf: []*huma.Schema{
		enumSchema(names(enum.All[gq.Priority]())),
		{Type: huma.TypeInteger, Minimum: &least, Maximum: &most},
	}}
}
func (statusForm) Schema(huma.Registry) *huma.Schema { return enumSchema(names(enum.All[gq.Status]())) }
func (eventTypeForm) Schema(huma.Registry) *huma.Schema {
	return enumSchema(names(enum.All[gq.EventType]()))
}
func (causeForm) Schema(huma.Registry) *huma.Schema { return enumSchema(names(enum.All[gq.Cause]())) }
func (kindForm) Schema(huma.Registry) *huma.Schema {
	return enumSchema(names(enum.All[gq.DependencyKind]()))
}

func (categoryForm) Schema(huma.Registry) *huma.Schema {
	return enumSchema(names(enum.All[gq.Category]()))
}
func (presetForm) Schema(huma.Registry) *huma.Schema { return enumSchema(names(enum.All[gq.Preset]())) }
func (strategyForm) Schema(huma.Registry) *huma.Schema {
	return enumSchema(names(enum.All[gq.Strategy]()))
}
func (jitterForm) Schema(huma.Registry) *huma.Schema { return enumSchema(names(enum.All[gq.Jitter]())) }
func (lossForm) Schema(huma.Registry) *huma.Schema   { return enumSchema(wire.Names(gq.LossRule.String)) }

func (extendForm) Schema(huma.Registry) *huma.Schema {
	return enumSchema(wire.Names(gq.ExtendMode.String))
}

func (missedForm) Schema(huma.Registry) *huma.Schema {
	return enumSchema(wire.Names(gq.MissedRule.String))
}

func (batchAnswerForm) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{
		r.Schema(reflect.TypeFor[wire.Submitted](), true, ""),
		r.Schema(reflect.TypeFor[wire.Refused](), true, ""),
	}}
}

var forms = map[reflect.Type]reflect.Type{
	reflect.TypeFor[gq.JobID]():          reflect.TypeFor[jobIDForm](),
	reflect.TypeFor[wire.Duration]():     reflect.TypeFor[durationForm](),
	reflect.TypeFor[gq.Priority]():       reflect.TypeFor[priorityForm](),
	reflect.TypeFor[wire.Priority]():     reflect.TypeFor[priorityInForm](),
	reflect.TypeFor[gq.Status]():         reflect.TypeFor[statusForm](),
	reflect.TypeFor[[]gq.Status]():       reflect.TypeFor[[]statusForm](), // or it would be taken for bytes
	reflect.TypeFor[gq.EventType]():      reflect.TypeFor[eventTypeForm](),
	reflect.TypeFor[gq.Cause]():          reflect.TypeFor[causeForm](),
	reflect.TypeFor[gq.DependencyKind](): reflect.TypeFor[kindForm](),
	reflect.TypeFor[gq.Category]():       reflect.TypeFor[categoryForm](),
	reflect.TypeFor[gq.Preset]():         reflect.TypeFor[presetForm](),
	reflect.TypeFor[gq.Strategy]():       reflect.TypeFor[strategyForm](),
	reflect.TypeFor[gq.Jitter]():         reflect.TypeFor[jitterForm](),
	reflect.TypeFor[wire.LossRule]():     reflect.TypeFor[lossForm](),
	reflect.TypeFor[wire.Extend]():       reflect.TypeFor[extendForm](),
	reflect.TypeFor[gq.MissedRule]():     reflect.TypeFor[missedForm](),
	reflect.TypeFor[wire.BatchAnswer]():  reflect.TypeFor[batchAnswerForm](),
}

// describe begins the description of the API.
func (h *HTTP) describe() huma.Config {
	registry := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	for t, form := range forms {
		registry.RegisterTypeAlias(t, form)
	}
	format := huma.Format{
		Marshal:   func(w io.Writer, v any) error { return wire.EncodeJSON(w, v) },
		Unmarshal: json.Unmarshal,
	}
	config := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "GopherQueue", Version: "v1",
				Description: "A lease-based job queue. Instants are RFC 3339 in UTC, durations as Go writes them, " +
					"errors RFC 9457 problems with a stable code. Unknown fields and parameters are refused.",
			},
			Components: &huma.Components{Schemas: registry},
			Tags: []*huma.Tag{
				{Name: "jobs", Description: "Submit jobs and follow them."},
				{Name: "work", Description: "Claim jobs, keep their leases, say how they ended."},
				{Name: "queues", Description: "Queues and the capacity they share."},
				{Name: "schedules", Description: "Jobs that come again and again."},
				{Name: "system", Description: "How the server stands."},
			},
		},
		Formats:       map[string]huma.Format{"application/json": format, "json": format},
		DefaultFormat: "application/json",
	}
	if h.options.Feed != nil {
		config.Tags = append(config.Tags, &huma.Tag{Name: "events", Description: "Follow what happens to jobs."})
	}
	if h.options.Admin != nil {
		config.Tags = append(config.Tags, &huma.Tag{Name: "admin", Description: "Tokens and webhook deliveries."})
	}
	openapi.Complete(config.OpenAPI)
	return config
}

func (h *HTTP) schema(t reflect.Type) *huma.Schema {
	return h.api.OpenAPI().Components.Schemas.Schema(t, true, "")
}

// describeEnd writes the description down once all operations are known.
func (h *HTTP) describeEnd() {
	description := h.api.OpenAPI()
	// huma's own form of errors is never used.
	delete(description.Components.Schemas.Map(), "ErrorModel")
	delete(description.Components.Schemas.Map(), "ErrorDetail")
	for _, schema := range description.Components.Schemas.Map() {
		for _, property := range schema.Properties {
			property.Nullable = property.Nullable && property.Type != huma.TypeArray // no list is ever null
		}
	}
	var b bytes.Buffer
	if err := wire.EncodeJSONIndented(&b, description); err != nil {
		panic("native: describe the API: " + err.Error()) // a defect, found by any test
	}
	h.openapi = b.Bytes()
	h.page = newDocsPage(description)
}
