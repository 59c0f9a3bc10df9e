package machine_test

import (
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// Numbers in the fields by which a job is unique count by value, exactly: however they are written,
// and beyond the digits of a float64.
func TestUniqueNumbers(t *testing.T) {
	name := func(number string) string {
		t.Helper()
		s := gq.Spec{Payload: gq.Payload{ContentType: gq.JSON, Data: []byte(`{"n":` + number + `}`)}, Unique: gq.UniqueRule{Fields: []string{"n"}}}
		name, err := machine.UniqueName(&s)
		if err != nil {
			t.Fatalf("%s: %v", number, err)
		}
		return name
	}
	seen := make(map[string]string)
	for _, equal := range [][]string{
		{"0", "-0", "0.0", "-0.0", "0e5", "0E-400"},
		{"1", "1.0", "1e0", "10e-1", "0.1e1", "1.000"},
		{"1.00000000000000001"}, {"-1", "-1.0"},
		{"1234567890123456.78", "1.23456789012345678e15"}, {"1234567890123456.79"}, {"1234567890123456.8"},
		{"9007199254740993", "9007199254740993.0"}, {"9007199254740992", "9007199254740992.0"},
		{"100000000000000000000000", "1e23"}, {"100000000000000000000001"},
		{"1.1", "1.10", "11e-1"}, {"0.1"}, {"0.1000000000000000055511151231257827"},
		{"1e400", "10e399", "0.1e401"}, {"1e401", "10e400"}, {"1e-400", "10e-401"}, {"-1e400"}, {"2e-400"}, {"1e999999999999"},
	} {
		first := name(equal[0])
		for _, number := range equal {
			if got := name(number); got != first {
				t.Errorf("%s is %s, but %s is %s", number, got, equal[0], first)
			}
		}
		if other, taken := seen[first]; taken {
			t.Errorf("%s and %s are both %s", equal[0], other, first)
		}
		seen[first] = equal[0]
	}
	// Keys of stored jobs stay as they are.
	for number, want := range map[string]string{
		"12": `{"n":12}`, "1.50": `{"n":1.5}`, "2.0": `{"n":2}`, "1e-7": `{"n":1e-7}`, "-0.25": `{"n":-0.25}`,
		"123456789012345678901234567890": `{"n":123456789012345678901234567890}`, "1e400": `{"n":1e400}`,
	} {
		if got := name(number); got != want {
			t.Errorf("the key of %s is %s, want %s", number, got, want)
		}
	}
}
