package scheduler

import (
	"bytes"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/gopherqueue/gq/internal/openapi"
	"github.com/gopherqueue/gq/internal/wire"
)

// stampSchema is how an instant is described.
type stampSchema struct{}

// Schema implements huma's interface of that name.
func (stampSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "date-time", Examples: []any{"2030-01-31T12:00:00Z"}}
}

// anywhere are the codes that any operation can end with.
var anywhere = []Code{
	CodeInvalidRequest, CodeUnauthenticated, CodeForbidden, CodeBodyIncomplete, CodeBodyTooLarge, CodeMediaType,
	CodeLimitReached, CodeConflict, CodeInternal, CodeUnavailable, CodeTimeout,
}

// describe is the API in OpenAPI.
func describe(all []route, version string) []byte {
	if version == "" {
		version = "development"
	}
	registry := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	registry.RegisterTypeAlias(reflect.TypeFor[stamp](), reflect.TypeFor[stampSchema]())
	api := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: "GopherQueue scheduler API", Version: version,
			Description: "Jobs that workers claim, ask capacity for and run under leases.\n\n" + codesForPeople(),
		},
		Components: &huma.Components{Schemas: registry},
		Tags: []*huma.Tag{
			{Name: "jobs", Description: "Submit jobs, claim them, follow them."},
			{Name: "leases", Description: "Run jobs within the capacity there is."},
			{Name: "stats", Description: "How everything stands, now and over time."},
			{Name: "facts", Description: "What is kept about jobs and leases, as tables."},
			{Name: "admin", Description: "Change how much capacity there is."},
		},
	}
	openapi.Complete(api)
	for _, r := range all {
		api.AddOperation(r.describe(registry))
	}
	var b bytes.Buffer
	if err := wire.EncodeJSONIndented(&b, api); err != nil {
		panic("scheduler: describe the API: " + err.Error()) // a defect, found by any test
	}
	return b.Bytes()
}

func codesForPeople() string {
	var b strings.Builder
	b.WriteString("Errors are `{\"detail\": …, \"code\": …}` with one of these codes:\n\n")
	for _, m := range meanings {
		fmt.Fprintf(&b, "- `%s` (%d): %s\n", m.Code, m.Status, m.Text)
	}
	return b.String()
}

func (r *route) describe(registry huma.Registry) *huma.Operation {
	status := r.status
	if status == 0 {
		status = http.StatusOK
	}
	op := &huma.Operation{
		Method: r.method, Path: Base + r.path, OperationID: r.id, Tags: []string{r.tag}, Summary: r.summary,
		Responses: map[string]*huma.Response{
			strconv.Itoa(status): {Description: "Done.", Content: content(registry.Schema(r.answer, true, ""))},
		},
	}
	for _, name := range []string{"job_id", "lease_id"} {
		if strings.Contains(r.path, "{"+name+"}") {
			op.Parameters = append(op.Parameters, &huma.Param{
				Name: name, In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString, Format: "uuid"},
			})
		}
	}
	for _, p := range r.query {
		op.Parameters = append(op.Parameters, p.describe())
	}
	if r.body != nil {
		op.RequestBody = &huma.RequestBody{Required: !r.optional, Content: content(registry.Schema(r.body, true, ""))}
	}
	for also, meaning := range r.also {
		op.Responses[strconv.Itoa(also)] = &huma.Response{Description: meaning}
	}
	failed := content(registry.Schema(reflect.TypeFor[Problem](), true, ""))
	codes := map[int][]string{}
	for _, m := range meanings {
		if slices.Contains(r.codes, m.Code) || slices.Contains(anywhere, m.Code) {
			codes[m.Status] = append(codes[m.Status], string(m.Code))
		}
	}
	for status, names := range codes {
		op.Responses[strconv.Itoa(status)] = &huma.Response{Description: "code: " + strings.Join(names, ", "), Content: failed}
	}
	return op
}

func (p *parameter) describe() *huma.Param {
	s := &huma.Schema{Type: huma.TypeString}
	if p.number {
		s.Type = huma.TypeInteger
	}
	if p.instant {
		s.Format = "date-time"
	}
	for _, v := range p.values {
		s.Enum = append(s.Enum, v)
	}
	return &huma.Param{Name: p.name, In: "query", Description: p.doc, Required: p.needed, Schema: s}
}

func content(s *huma.Schema) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{"application/json": {Schema: s}}
}
