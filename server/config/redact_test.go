package config

import "testing"

func TestRedact(t *testing.T) {
	for store, want := range map[string]string{
		"file:gq-data":                                             "file:gq-data",
		"memory:":                                                  "memory:",
		"postgres://gq@db/jobs?sslmode=require":                    "postgres://gq@db/jobs?sslmode=require",
		"postgres://gq:secret@db/jobs":                             "postgres://gq:xxxxx@db/jobs",
		"postgres://db/jobs?password=secret&user=gq":               "postgres://db/jobs?password=xxxxx&user=gq",
		"postgres://gq:secret@db/jobs?sslpassword=secret":          "postgres://gq:xxxxx@db/jobs?sslpassword=xxxxx",
		"postgres://gq:sec%ret@db/jobs":                            "postgres://...",
		"postgres:///jobs?host=/run/postgresql&password=secret%26": "postgres:///jobs?host=%2Frun%2Fpostgresql&password=xxxxx",
	} {
		if got := Redact(store); got != want {
			t.Errorf("%s is shown as %s, want %s", store, got, want)
		}
	}
}
