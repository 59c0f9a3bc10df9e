package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/delivery"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/storeurl"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/server/config"
	"github.com/gopherqueue/gq/webhook"
)

// configFlags has a flag for every key of the configuration.
type configFlags struct {
	file   string
	values map[string]*string // by key
}

func newConfigFlags(c *cobra.Command) *configFlags {
	f := &configFlags{values: map[string]*string{}}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.file, "config", "", "YAML file with the configuration (default GQ_CONFIG)")
	defaults := config.Default()
	for _, s := range defaults.Settings() {
		value := new(string)
		f.values[s.Key] = value
		usage := s.Usage
		if text := s.Text(); text != "" && !s.Short && !s.IsBool() {
			usage += " (default " + text + ")"
		}
		flags.StringVar(value, s.Flag(), "", usage)
		flags.Lookup(s.Flag()).Hidden = s.Former()
		if s.IsBool() {
			flags.Lookup(s.Flag()).NoOptDefVal = "true"
		}
	}
	return f
}

// load reads the file, the environment and the flags.
func (f *configFlags) load(c *cobra.Command, p process) (config.Loaded, error) {
	sources := config.Sources{Env: p.getenv, Flags: map[string]string{}, Check: checkConfig}
	if sources.File = f.file; sources.File == "" {
		sources.File = p.getenv("GQ_CONFIG")
	}
	if sources.File != "" {
		text, err := readFile(sources.File, 1<<20)
		if os.IsNotExist(err) {
			return config.Loaded{}, cli.Invalid("config", fmt.Sprintf("there is no file %s", sources.File))
		} else if err != nil {
			return config.Loaded{}, fmt.Errorf("read the configuration: %w", err)
		}
		sources.Text = text
	}
	defaults := config.Default()
	for _, s := range defaults.Settings() {
		if c.Flags().Changed(s.Flag()) {
			sources.Flags[s.Key] = *f.values[s.Key]
		}
	}
	return config.Load(sources)
}

// checkConfig reports values that a server would reject.
func checkConfig(c *config.Config, fault func(key, format string, args ...any)) {
	_, store := storeurl.Parse(c.Store)
	_, allow := delivery.ParseAllow(c.Webhooks.Allow)
	var secret error
	if c.Webhooks.Secret != "" {
		_, secret = webhook.ParseSecret(c.Webhooks.Secret)
	}
	for _, v := range []struct {
		key string
		err error
	}{{"store", store}, {"webhooks.allow", allow}, {"webhooks.secret", secret}} {
		for _, f := range errs.FaultsOf(v.err) {
			fault(v.key, "%s", f.Problem)
		}
	}
}

const configHelp = `A key a.b_c of the file is also the flag --a-b-c and the variable GQ_A_B_C. Flags
override the environment, the environment overrides the file, and the file
overrides the defaults. Write durations as 30s, 5m or 168h, and sizes as 1048576,
512KiB or 1MiB. Unknown keys, invalid values and contradictions are all reported
together, each with its line.`

func newConfig(p process) *cobra.Command {
	c := &cobra.Command{
		Use:     "config",
		Short:   "Check or print the configuration of the server",
		Long:    "Check or print the configuration that gq serve would use.\n\n" + configHelp,
		Example: "  gq config check --config gq.yaml\n  gq config print --config gq.yaml",
	}
	check := &cobra.Command{
		Use:     "check [FILE]",
		Short:   "Report everything that is wrong with a configuration",
		Long:    "Report everything that is wrong with a configuration. The exit status is 2 if the\nconfiguration is invalid.\n\n" + configHelp,
		Example: "  gq config check gq.yaml\n  gq config check --config gq.yaml --http 127.0.0.1:9000",
		Args:    cobra.MaximumNArgs(1),
	}
	checked := newConfigFlags(check)
	var checkJSON bool
	check.Flags().BoolVar(&checkJSON, "json", false, "print JSON for programs")
	check.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 1 {
			if checked.file != "" {
				return cli.Invalid("config", fmt.Sprintf("%s and --config %s are two files; want one", args[0], checked.file))
			}
			checked.file = args[0]
		}
		if _, err := checked.load(c, p); err != nil {
			return err
		}
		if checkJSON {
			return wire.EncodeJSON(p.stdout, map[string]string{"status": "ok"})
		}
		_, err := fmt.Fprintln(p.stdout, "ok")
		return err
	}
	show := &cobra.Command{
		Use:     "print",
		Short:   "Print the configuration and the source of each value",
		Long:    "Print the configuration as a file, with the source of each value. Secrets are not\nprinted.\n\n" + configHelp,
		Example: "  gq config print\n  gq config print --config gq.yaml --json",
		Args:    cli.NoArguments,
	}
	shown := newConfigFlags(show)
	var showJSON bool
	show.Flags().BoolVar(&showJSON, "json", false, "print JSON for programs")
	show.RunE = func(c *cobra.Command, _ []string) error {
		loaded, err := shown.load(c, p)
		if err != nil {
			return err
		}
		if showJSON {
			return wire.EncodeJSON(p.stdout, loaded.Values())
		}
		return loaded.Print(p.stdout)
	}
	c.AddCommand(check, show)
	return c
}
