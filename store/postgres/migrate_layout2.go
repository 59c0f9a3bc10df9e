//go:build gq_layout2

package postgres

// A made-up step, for tests of upgrades: programs of layout 1 can use the tables meanwhile.
func init() {
	migrations = append(migrations, migration{to: 2, name: "layout2", oldest: 1, sql: `
		ALTER TABLE gq.ready ADD made_up text NOT NULL DEFAULT 'x';
		CREATE FUNCTION gq.made_up() RETURNS text LANGUAGE sql AS $$ SELECT 'for programs of layout 1' $$;
		INSERT INTO gq.migration (version) VALUES (2);`,
		finish: `DROP FUNCTION gq.made_up();`,
	})
}
