package main

import (
	"strings"
	"testing"
)

func TestQueueKeys(t *testing.T) {
	d := newShell(t)
	q := d.json("queue", "set", "mail", "--key-limit", "2", "--key-rate", "10/s", "--key-burst", "3")
	rate, _ := q["key_rate"].(map[string]any)
	if q["key_limit"] != 2.0 || rate["count"] != 10.0 || rate["per"] != "1s" || rate["burst"] != 3.0 {
		t.Errorf("%v", q)
	}
	k := d.json("queue", "key", "set", "mail", "acme", "--limit", "5", "--rate", "100/1m", "--burst", "7")
	rate, _ = k["rate"].(map[string]any)
	if k["queue"] != "mail" || k["key"] != "acme" || k["limit"] != 5.0 || rate["count"] != 100.0 || rate["burst"] != 7.0 {
		t.Errorf("%v", k)
	}
	d.want(0, "queue", "key", "set", "mail", "a/b", "--rate", "1/s")
	if all := d.json("queue", "key", "list", "mail"); len(all["keys"].([]any)) != 2 {
		t.Errorf("%v", all)
	}
	if got := d.want(0, "queue", "key", "list", "mail"); !strings.Contains(got, "acme") || !strings.Contains(got, "100/1m0s burst 7") || !strings.Contains(got, "of the queue") {
		t.Errorf("%s", got)
	}
	if got := d.want(0, "queue", "show", "mail"); !strings.Contains(got, "10/1s burst 3 per key") || !strings.Contains(got, "2 keys with limits of their own") {
		t.Errorf("%s", got)
	}
	if got := d.want(0, "queue", "key", "unset", "mail", "a/b"); !strings.Contains(got, "has the limits of mail again") {
		t.Errorf("%s", got)
	}
	if unset := d.json("queue", "key", "unset", "mail", "acme"); unset["unset"] != "acme" {
		t.Errorf("%v", unset)
	}
	if q := d.json("queue", "set", "mail", "--key-rate", "0"); q["key_rate"] != nil || q["own_keys"] != nil {
		t.Errorf("%v", q)
	}
	d.want(3, "queue", "key", "unset", "mail", "acme")
	for _, args := range [][]string{
		{"queue", "key", "set", "mail", "acme"},
		{"queue", "key", "set", "mail", "acme", "--limit", "-1"},
		{"queue", "key", "set", "mail", "acme", "--limit", "0", "--rate", "1/s"}, // 0 is no limit of a queue
		{"queue", "key", "set", "mail", "acme", "--limit", "5", "--rate", "0"},
		{"queue", "key", "set", "mail", "acme", "--rate", "often"},
		{"queue", "key", "set", "mail", "acme", "--limit", "1", "--burst", "3"},
		{"queue", "key", "set", "mail"},
		{"queue", "set", "mail", "--key-burst", "3"},
		{"submit", "a", "--weight", "5"},
	} {
		d.want(2, args...)
	}
	if id := d.submit("a", "--queue", "mail", "--limit-key", "acme", "--weight", "5"); d.json("job", "get", id)["weight"] != 5.0 {
		t.Error("the job does not show its weight")
	}
}
