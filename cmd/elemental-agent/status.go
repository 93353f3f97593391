package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/config"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/connection"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/hostkey"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform/linux"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/subcommand"
)

// status is what the status command shows.
type status struct {
	Version     string               `json:"version"`
	HostID      string               `json:"hostID,omitempty"`
	Host        string               `json:"host,omitempty"`
	Approved    bool                 `json:"approved"`
	Key         string               `json:"key,omitempty"`
	KeyPlace    string               `json:"keyPlace,omitempty"`
	Generation  int64                `json:"generation"`
	Servers     []string             `json:"servers"`
	Connection  *connection.Status   `json:"connection,omitempty"`
	ServerTime  *time.Time           `json:"serverTime,omitempty"`
	ClockSkew   string               `json:"clockSkew,omitempty"`
	ProviderID  string               `json:"providerID,omitempty"`
	Cleanliness protocol.Cleanliness `json:"cleanliness"`
	Operations  []protocolOperation  `json:"operations"`
	Wanted      *protocol.Operation  `json:"wanted,omitempty"`
}

// protocolOperation is an operation as the agent remembers it.
type protocolOperation struct {
	protocol.OperationReport
	Acknowledged bool   `json:"acknowledged"`
	Machine      string `json:"machine,omitempty"`

	unreported bool
}

func statusCommand() subcommand.Command {
	return subcommand.Command{
		Name: "status", Summary: "Show who this host is and what it did",
		Details: "Shows the state that the agent has stored, and the state of the connection to the manager.\nIt can be used while the agent runs.",
		SetUp: func(flags *pflag.FlagSet) func(context.Context, subcommand.Streams, []string) error {
			path := configFlag(flags)
			output := flags.StringP("output", "o", "text", "text or json")
			return func(ctx context.Context, s subcommand.Streams, args []string) error {
				if err := noArguments(args); err != nil {
					return err
				}
				if *output != "text" && *output != "json" {
					return subcommand.Usage(fmt.Errorf("--output is text or json, not %q", *output))
				}
				settings, _, err := loadSettings(*path)
				if err != nil {
					return subcommand.Usage(err)
				}
				shown, err := readStatus(ctx, settings, logger(s, slog.LevelWarn))
				if err != nil {
					return err
				}
				if *output == "json" {
					encoder := json.NewEncoder(s.Out)
					encoder.SetIndent("", "  ")
					return encoder.Encode(shown)
				}
				return shown.print(s.Out)
			}
		},
	}
}

func readStatus(ctx context.Context, settings config.Config, log *slog.Logger) (status, error) {
	shown := status{Version: agentVersion(), Servers: settings.Servers, Operations: []protocolOperation{}}
	found, err := linux.New(linux.Options{}).Cleanliness(ctx)
	if err != nil {
		return status{}, err
	}
	shown.Cleanliness = found
	if _, err := os.Stat(settings.StateDir); errors.Is(err, fs.ErrNotExist) {
		return shown, nil
	}
	dir, err := state.NewDir(settings.StateDir)
	if err != nil {
		return status{}, err
	}
	store, err := state.Open(dir)
	if err != nil {
		return status{}, err
	}
	shown.Connection = connectionFile(log).read()
	who, plan, clock := store.Identity(), store.Plan(), store.Clock()
	if who.Enrolled() {
		shown.HostID, shown.Host, shown.Approved = who.HostID, who.Namespace+"/"+who.Name, who.Approved
	}
	if who.Key != "" {
		if shown.Key, err = hostkey.Fingerprint(who.Key); err != nil {
			return status{}, err
		}
		shown.KeyPlace = hostkey.Place(who.Key)
	}
	shown.Generation, shown.ProviderID, shown.Wanted = who.Generation, plan.Desired.ProviderID, plan.Operation
	if trust := store.Trust(); len(trust.Servers) > 0 {
		shown.Servers = trust.Servers
	}
	if !clock.ServerTime.IsZero() {
		shown.ServerTime = &clock.ServerTime
		if clock.Skew.Abs() > time.Minute {
			shown.ClockSkew = clock.Skew.String()
		}
	}
	for _, op := range store.Operations() {
		shown.Operations = append(shown.Operations, protocolOperation{
			OperationReport: op.Report(), Acknowledged: op.Acknowledged, Machine: op.MachineName, unreported: op.Reportable(),
		})
	}
	return shown, nil
}

func (s status) print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name string, value any) {
		if text := fmt.Sprint(value); text != "" {
			_, _ = fmt.Fprintf(table, "%s:\t%s\n", name, text)
		}
	}
	row("Version", s.Version)
	switch {
	case s.Host == "":
		row("Host", "not enrolled")
	case !s.Approved:
		row("Host", s.Host+" (waiting for an administrator's approval)")
	default:
		row("Host", s.Host)
	}
	row("Host ID", s.HostID)
	if s.Key != "" {
		row("Key", s.Key+" (in the "+s.KeyPlace+")")
	}
	row("Servers", strings.Join(s.Servers, " "))
	if s.Connection == nil {
		row("Connection", "the agent has not run since the host was started")
	} else {
		row("Connection", s.Connection.State+" since "+s.Connection.Since.Format(time.RFC3339))
		row("Reason", s.Connection.Error)
	}
	if s.ClockSkew != "" {
		row("Clock", "this host's clock differs from the manager's by "+s.ClockSkew)
	}
	row("Provider ID", s.ProviderID)
	if s.Cleanliness.Clean {
		row("Clean", "yes")
	} else {
		row("Clean", "no: "+strings.Join(s.Cleanliness.Leftovers, ", "))
	}
	for _, op := range s.Operations {
		text := fmt.Sprintf("%s of %s since %s", op.State, op.ID, op.StartedAt.Format(time.RFC3339))
		if op.Machine != "" {
			text += ", Machine " + op.Machine
		}
		if op.Step != "" {
			text += ", in step " + op.Step
		}
		if op.unreported {
			text += ", not yet reported"
		}
		row(string(op.Type), text)
		row("", op.Message)
	}
	return table.Flush()
}
