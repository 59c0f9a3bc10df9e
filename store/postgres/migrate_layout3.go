//go:build gq_layout3

package postgres

// A made-up step after that of layout 2.
func init() {
	migrations = append(migrations, migration{to: 3, name: "layout3", oldest: 2, sql: `
		CREATE TABLE gq.made_up_too (n integer);
		INSERT INTO gq.migration (version) VALUES (3);`,
	})
}
