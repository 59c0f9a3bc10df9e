package classify_test

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/classify"
)

// A handler states a verdict if it knows one; other errors are classified by their types.
func ExampleError() {
	for _, err := range []error{
		gq.RetryAfter(errors.New("printer is warming up"), time.Minute),
		fmt.Errorf("ship order: %w", gq.Permanent(errors.New("no such street"), "bad_address")),
		fmt.Errorf("read the template: %w", fs.ErrNotExist),
		errors.New("user 7 not found"),
	} {
		f := classify.Error(err)
		fmt.Printf("%v %q %v\n", f.Category, f.Code, f.Message)
	}
	// Output:
	// TEMPORARY "" printer is warming up
	// PERMANENT "bad_address" ship order: no such street
	// PERMANENT "not_found" read the template: file does not exist
	// TEMPORARY "" user 7 not found
}

// A worker can go by words too, with Config.Classify.
func ExampleWords() {
	f := classify.Words(errors.New("user 7 not found"))
	fmt.Printf("%v %q\n", f.Category, f.Code)
	// Output:
	// PERMANENT "not_found"
}
