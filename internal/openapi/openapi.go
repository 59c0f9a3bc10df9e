// Package openapi has what the descriptions of all HTTP APIs have in common: where
// the server is, how callers identify themselves, and how streams are described.
package openapi

import (
	"github.com/danielgtaylor/huma/v2"
)

// tokenScheme is the name of the security scheme.
const tokenScheme = "token"

// Complete adds to a description what all have in common.
func Complete(api *huma.OpenAPI) {
	api.Info.License = &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"}
	api.Servers = []*huma.Server{{URL: "/", Description: "The server that this description comes from."}}
	if api.Components.SecuritySchemes == nil {
		api.Components.SecuritySchemes = map[string]*huma.SecurityScheme{}
	}
	api.Components.SecuritySchemes[tokenScheme] = &huma.SecurityScheme{
		Type: "http", Scheme: "bearer",
		Description: "A token made by `gq token create` or POST /v1/tokens. A server without tokens asks nobody for one.",
	}
	api.Security = []map[string][]string{{tokenScheme: {}}, {}}
}

// Open marks an operation that needs no token even where the others do.
func Open(op *huma.Operation) { op.Security = []map[string][]string{} }

// Lines describes a text of many JSON values, one a line, for which OpenAPI 3.1 has
// no form of its own: generated clients get the text, and people the schema of a
// line.
func Lines(description string, line *huma.Schema) *huma.Schema {
	return &huma.Schema{
		Type: huma.TypeString, Description: description,
		Extensions: map[string]any{"contentMediaType": "application/json", "contentSchema": line},
	}
}
