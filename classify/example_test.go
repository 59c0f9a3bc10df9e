package classify_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/classify"
)

// A handler states a verdict if it knows one; other errors are classified by what they
// say.
func ExampleError() {
	for _, err := range []error{
		gq.RetryAfter(errors.New("printer is warming up"), time.Minute),
		fmt.Errorf("ship order: %w", gq.Permanent(errors.New("no such street"), "bad_address")),
		errors.New("call billing: unexpected status 503"),
		errors.New("user 7 not found"),
		errors.New("something odd"),
	} {
		f := classify.Error(err)
		fmt.Printf("%v %q %v\n", f.Category, f.Code, f.Message)
	}
	// Output:
	// TEMPORARY "" printer is warming up
	// PERMANENT "bad_address" ship order: no such street
	// TEMPORARY "http_503" call billing: unexpected status 503
	// PERMANENT "not_found" user 7 not found
	// TEMPORARY "" something odd
}
