package storetest

import (
	"reflect"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/scribble"
	"github.com/gopherqueue/gq/store"
)

// lent are the types of memory that bugs share with callers.
var lent = map[bug]reflect.Type{
	lendsLeases:   reflect.TypeFor[*gq.Lease](),
	lendsPolicies: reflect.TypeFor[*gq.Policy](),
	lendsFailures: reflect.TypeFor[*gq.Failure](),
	lendsBytes:    reflect.TypeFor[[]byte](),
	lendsMaps:     reflect.TypeFor[map[string]string](),
	lendsLists:    reflect.TypeFor[[]string](),
}

// own returns an answer as callers get it: a copy.
func own[T any](n *naive, answer T) T {
	if t := lent[n.bug]; t != nil {
		return scribble.CopyBut(answer, t)
	}
	return scribble.Copy(answer)
}

// Config implements [store.Store].
func (n *naive) Config() store.Config { return n.cfg }
