package matching

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/openapi"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/match"
)

// shapes are what a route is called, takes and answers. They are described by the
// types that are read and written.
type shapes struct {
	id, summary string
	query       []string
	body        reflect.Type // nil for none
	needed      []string     // members of the body; all others are optional
	without     []string     // members of its type that are refused
	answer      reflect.Type
	created     bool // answers 201 where it made something
}

func shape[T any]() reflect.Type { return reflect.TypeFor[T]() }

// forms are how values of some types look in JSON.
var forms = map[reflect.Type]reflect.Type{
	shape[match.Kind]():      shape[kindForm](),
	shape[[]match.Kind]():    shape[[]kindForm](),
	shape[match.Status]():    shape[statusForm](),
	shape[match.Share]():     shape[shareForm](),
	shape[match.Hex]():       shape[hexForm](),
	shape[match.Seed]():      shape[hexForm](),
	shape[gq.JobID]():        shape[idForm](),
	shape[json.RawMessage](): shape[anyForm](),
}

type (
	kindForm   struct{}
	statusForm struct{}
	shareForm  struct{}
	hexForm    struct{}
	idForm     struct{}
	anyForm    struct{}
)

func words[T fmt.Stringer](all []T) (list []any) {
	for _, v := range all {
		list = append(list, v.String())
	}
	return list
}

func (kindForm) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Enum: words(match.Kinds())}
}

func (statusForm) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Enum: words(match.Statuses())}
}

func (shareForm) Schema(huma.Registry) *huma.Schema { return &huma.Schema{Type: huma.TypeNumber} }

func (hexForm) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Pattern: "^([0-9a-fA-F]{2})*$"}
}

func (idForm) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "uuid"}
}

func (anyForm) Schema(huma.Registry) *huma.Schema { return &huma.Schema{Description: "Any JSON."} }

// describe is the API in OpenAPI.
func describe(all []route, version string) []byte {
	if version == "" {
		version = "development"
	}
	registry := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	for t, form := range forms {
		registry.RegisterTypeAlias(t, form)
	}
	api := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: "GopherQueue matching API", Version: version,
			Description: "Jobs that rounds assign to providers. Times are seconds since 1970. Errors are problems (RFC 9457) with a stable code. " +
				"Events are told over a WebSocket at " + strings.Replace(socketRoute, "GET ", Base, 1) + ".",
		},
		Components: &huma.Components{Schemas: registry},
	}
	openapi.Complete(api)
	for _, r := range all {
		api.AddOperation(r.describe(registry))
	}
	var b bytes.Buffer
	if err := wire.EncodeJSONIndented(&b, api); err != nil {
		panic("matching: describe the API: " + err.Error()) // a defect, found by any test
	}
	return b.Bytes()
}

func (r *route) describe(registry huma.Registry) *huma.Operation {
	content := func(kind string, s *huma.Schema) map[string]*huma.MediaType {
		return map[string]*huma.MediaType{kind: {Schema: s}}
	}
	tag, _, _ := strings.Cut(strings.TrimPrefix(r.path, "/"), "/")
	op := &huma.Operation{
		Method: r.method, Path: Base + r.path, OperationID: r.id, Tags: []string{tag}, Summary: r.summary,
		Responses: map[string]*huma.Response{
			strconv.Itoa(http.StatusOK): {Description: "Done.", Content: content("application/json", registry.Schema(r.answer, true, ""))},
			"default":                   {Description: "Refused; code says why.", Content: content("application/problem+json", registry.Schema(shape[wire.Problem](), true, ""))},
		},
	}
	for status, text := range map[string]string{
		"400": "The request is wrong in itself.", "401": "A valid token is required.", "403": "The token does not allow this.",
	} {
		op.Responses[status] = &huma.Response{Description: text, Content: op.Responses["default"].Content}
	}
	if r.created {
		op.Responses[strconv.Itoa(http.StatusCreated)] = op.Responses[strconv.Itoa(http.StatusOK)]
	}
	for part := range strings.SplitSeq(r.path, "/") {
		if name, found := strings.CutPrefix(part, "{"); found {
			op.Parameters = append(op.Parameters, &huma.Param{
				Name: strings.TrimSuffix(name, "}"), In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString},
			})
		}
	}
	for _, name := range r.query {
		op.Parameters = append(op.Parameters, &huma.Param{Name: name, In: "query", Schema: &huma.Schema{Type: huma.TypeString}})
	}
	if r.body != nil {
		s := given(registry, registry.Schema(r.body, true, ""))
		s.Required = r.needed
		for _, name := range r.without {
			delete(s.Properties, name)
		}
		op.RequestBody = &huma.RequestBody{Required: len(r.needed) > 0, Content: content("application/json", s)}
	}
	return op
}

// given is a schema in which nothing is required: what a body may leave out is told
// by the route, not by the type, which answers use too.
func given(registry huma.Registry, s *huma.Schema) *huma.Schema {
	if s.Ref != "" {
		s = registry.SchemaFromRef(s.Ref)
	}
	copied := *s
	copied.Required = nil
	if len(s.Properties) > 0 {
		copied.Properties = make(map[string]*huma.Schema, len(s.Properties))
		for name, p := range s.Properties {
			if name == "$schema" {
				continue
			}
			copied.Properties[name] = given(registry, p)
		}
	}
	if s.Items != nil {
		copied.Items = given(registry, s.Items)
	}
	return &copied
}

// describe answers what the API looks like.
func (f *Face) describe(w http.ResponseWriter, r *http.Request) {
	c := f.begin(w, r)
	c.w.Header().Set("Content-Type", "application/json")
	_, _ = c.w.Write(f.openapi) // the client has left
}

// OpenAPI is the description of the API, as JSON.
func (f *Face) OpenAPI() []byte { return f.openapi }
