// Package openapi pins what generates a Go client from the description of the HTTP
// API and what the generated client needs. Only a test uses it.
package openapi

import (
	_ "github.com/oapi-codegen/runtime"
	_ "github.com/oapi-codegen/runtime/types"
)
