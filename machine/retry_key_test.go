package machine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// TestRetryNames checks that names sort in the order in which they are drawn, and that each
// encodes a number of its own.
func TestRetryNames(t *testing.T) {
	at := time.UnixMilli(1_790_000_000_000)
	var names []string
	for k := range 3 {
		for i := range 40 {
			names = append(names, machine.RetryName(at.Add(time.Duration(k)*time.Millisecond), [10]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 250}, i))
		}
	}
	if !slices.IsSorted(names) {
		t.Errorf("not in order: %q", names)
	}
	seen := map[[16]byte]string{}
	for _, name := range names {
		number, ok := machine.RetryNumber(gq.IdempotencyKey{Scope: machine.RetryScope, Name: name})
		if other := seen[number]; !ok || other != "" {
			t.Errorf("%q encodes a number: %t, as %q does", name, ok, other)
		}
		seen[number] = name
	}
}

// TestOtherNames lists names that encode no number.
func TestOtherNames(t *testing.T) {
	name := machine.RetryName(time.UnixMilli(1), [10]byte{1}, 0)
	for what, k := range map[string]gq.IdempotencyKey{
		"another scope":      {Scope: "x", Name: name},
		"lower case":         {Scope: machine.RetryScope, Name: "0000000000g" + name[11:]},
		"too short":          {Scope: machine.RetryScope, Name: name[:25]},
		"too long":           {Scope: machine.RetryScope, Name: name + "0"},
		"unused bits":        {Scope: machine.RetryScope, Name: name[:25] + "1"},
		"a letter too many":  {Scope: machine.RetryScope, Name: name[:25] + "Z"},
		"a line break":       {Scope: machine.RetryScope, Name: name[:25] + "\n"},
		"nothing":            {Scope: machine.RetryScope},
		"text of 26 letters": {Scope: machine.RetryScope, Name: "abcdefghijklmnopqrstuvwxyz"},
	} {
		if number, ok := machine.RetryNumber(k); ok || number != [16]byte{} {
			t.Errorf("%s: %q encodes %x", what, k.Name, number)
		}
	}
}
