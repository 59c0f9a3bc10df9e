package native

import (
	"fmt"
	"strings"
	"testing"
)

// A limit that is null is taken away; one that is absent stays.
func TestNullTakesALimitAway(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	s.want(200, "PUT", "/v1/pools/p", `{"capacity":5}`)
	const all = `{"max_running":2,"max_depth":3,"rate":{"count":5,"per":"1s"},"key_rate":{"count":6,"per":"1s"},"key_limit":1,"pool":"p"}`
	for _, method := range []string{"PUT", "PATCH"} {
		s.want(200, method, "/v1/queues/q", all)
		if got := s.want(200, method, "/v1/queues/q", `{"rate": null, "max_depth":null}`).text; strings.Contains(got, `"rate":`) ||
			strings.Contains(got, `"max_depth":3`) || !strings.Contains(got, `"key_rate":{"count":6`) || !strings.Contains(got, `"max_running":2`) {
			t.Errorf("%s: %s", method, got)
		}
		got := s.want(200, method, "/v1/queues/q", `{"max_running":null,"key_rate":null,"key_limit":null,"pool":null}`).text
		for _, name := range []string{`"key_rate":`, `"max_running":2`, `"key_limit":1`, `"pool":"p"`} {
			if strings.Contains(got, name) {
				t.Errorf("%s kept %s: %s", method, name, got)
			}
		}
	}
	s.want(400, "PATCH", "/v1/queues/q", `{"rate":null,"limit":null}`)
	document := s.want(200, "GET", "/openapi.json")
	for name, want := range map[string]string{
		"max_running": "[integer null]", "max_depth": "[integer null]", "key_limit": "[integer null]", "pool": "[string null]", "paused": "boolean",
	} {
		if got := fmt.Sprint(document.at("components", "schemas", "QueueChange", "properties", name, "type")); got != want {
			t.Errorf("the description of the API says that %s is %s, want %s", name, got, want)
		}
	}
	for _, name := range []string{"rate", "key_rate"} {
		forms := document.at("components", "schemas", "QueueChange", "properties", name, "oneOf")
		if got, want := fmt.Sprint(forms), "[map[$ref:#/components/schemas/Rate] map[type:null]]"; got != want {
			t.Errorf("the description of the API says that %s is %s, want %s", name, got, want)
		}
	}
}
