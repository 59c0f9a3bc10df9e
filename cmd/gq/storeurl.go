package main

import (
	"fmt"
	"strings"

	"github.com/gopherqueue/gq"
)

// storeURL says which store a command works on.
type storeURL struct {
	scheme string // "memory", "file" or "postgres"
	dir    string // of a file store; the rest of a PostgreSQL one
}

const (
	storeURLHelp    = "memory: or file:DIR" // of commands that need an embedded store
	allStoreURLHelp = "memory:, file:DIR or postgres://…"
)

// parseAnyStoreURL reads what [parseStoreURL] does, and URLs of PostgreSQL.
func parseAnyStoreURL(text string) (storeURL, error) {
	scheme, rest, _ := strings.Cut(text, ":")
	if (scheme == "postgres" || scheme == "postgresql") && strings.HasPrefix(rest, "//") {
		return storeURL{scheme, rest}, nil
	}
	u, err := parseStoreURL(text)
	if err != nil {
		err = &gq.InvalidError{Faults: []gq.Fault{{Field: "store", Problem: strings.Replace(gq.FaultsOf(err)[0].Problem, storeURLHelp, allStoreURLHelp, 1)}}}
	}
	return u, err
}

// parseStoreURL reads memory:, file:DIR and file:///DIR. DIR is taken as it
// stands.
func parseStoreURL(text string) (storeURL, error) {
	fail := func(format string, args ...any) (storeURL, error) {
		return storeURL{}, &gq.InvalidError{Faults: []gq.Fault{{Field: "store", Problem: fmt.Sprintf(format, args...)}}}
	}
	scheme, rest, ok := strings.Cut(text, ":")
	switch {
	case !ok:
		return fail("%q is not a store URL; want %s", text, storeURLHelp)
	case scheme == "memory" && rest == "":
		return storeURL{scheme: scheme}, nil
	case scheme == "memory":
		return fail("%q: nothing may follow memory:", text)
	case scheme != "file":
		return fail("%q: unknown kind of store %q; want %s", text, scheme, storeURLHelp)
	}
	if path, ok := strings.CutPrefix(rest, "//"); ok {
		if !strings.HasPrefix(path, "/") {
			return fail("%q names a host; want file:DIR or file:///DIR", text)
		}
		rest = path
	}
	if rest == "" {
		return fail("%q: the directory is missing; want file:DIR", text)
	}
	if strings.ContainsRune(rest, 0) {
		return fail("%q: a directory's name has no NUL", text)
	}
	return storeURL{scheme, rest}, nil
}

func (u storeURL) String() string { return u.scheme + ":" + u.dir }
