package matching

import (
	"encoding/json"
	"reflect"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/match"
)

// newSchemas has the schemas of types that reflection cannot derive.
func newSchemas() *httpx.Schemas {
	hex := httpx.Schema{Type: "string", Pattern: "^([0-9a-fA-F]{2})*$"}
	s := httpx.NewSchemas(map[reflect.Type]httpx.Schema{
		reflect.TypeFor[match.Kind]():      httpx.Enum(match.Kinds()),
		reflect.TypeFor[match.Status]():    httpx.Enum(match.Statuses()),
		reflect.TypeFor[match.Share]():     {Type: "number"},
		reflect.TypeFor[match.Hex]():       hex,
		reflect.TypeFor[match.Seed]():      hex,
		reflect.TypeFor[gq.JobID]():        {Type: "string", Format: "uuid"},
		reflect.TypeFor[json.RawMessage](): {Description: "Any JSON."},
	})
	s.NullLists = true
	return s
}

// given describes a request body of type T: its required members and those it does not
// accept. T alone does not say, because responses use it too.
func given[T any](schemas *httpx.Schemas, needed, without []string) *httpx.Schema {
	s := optional(schemas, schemas.Of(reflect.TypeFor[T]()))
	s.Required = needed
	for _, name := range without {
		delete(s.Properties, name)
	}
	return s
}

// optional copies a schema and makes every member optional.
func optional(schemas *httpx.Schemas, s *httpx.Schema) *httpx.Schema {
	copied := *schemas.Named(s)
	copied.Required = nil
	if len(copied.Properties) > 0 {
		members := copied.Properties
		copied.Properties = make(map[string]*httpx.Schema, len(members))
		for name, p := range members {
			copied.Properties[name] = optional(schemas, p)
		}
	}
	if copied.Items != nil {
		copied.Items = optional(schemas, copied.Items)
	}
	return &copied
}
