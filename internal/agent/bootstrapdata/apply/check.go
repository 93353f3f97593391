package apply

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/accounts"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/files"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/step"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/units"
)

// checkStep fails before anything is written if a later step must fail: for an
// unknown owner, a missing program, or a directory in place of a file.
type checkStep struct{ *bootstrapdata.Config }

func (s checkStep) Title() string { return "check" }

func (s checkStep) Prepare(ctx context.Context, e *step.Execution, in *journal.Intent) error {
	in.Skip = true
	users, groups := accounts.Declared(s.Config)
	if err := files.CheckFiles(e.Host, s.Config, users, groups); err != nil {
		return err
	}
	if err := files.CheckNodes(e.Host, s.Config, users, groups); err != nil {
		return err
	}
	if err := accounts.Check(e.Host, s.Config, groups); err != nil {
		return err
	}
	if err := s.programs(e.Host); err != nil {
		return err
	}
	return units.Check(ctx, e.Host, s.Config)
}

func (s checkStep) Execute(context.Context, *step.Execution, *journal.Intent) error { return nil }

func (s checkStep) programs(h *host.Host) error {
	need := func(what string, names ...string) error {
		if h.Find(names...) != "" {
			return nil
		}
		return fmt.Errorf("%s needs %s, which is not installed on this host", what, strings.Join(names, " or "))
	}
	if len(s.Users) > 0 {
		if err := need("making users", "useradd"); err != nil {
			return err
		}
	}
	if len(s.Disks) > 0 {
		if err := errors.Join(need("disk_setup", "sfdisk"), need("disk_setup", "wipefs")); err != nil {
			return err
		}
	}
	for _, f := range s.Filesystems {
		if f.Command != "" {
			continue
		}
		if err := errors.Join(need("fs_setup", "mkfs."+f.Type, "mk"+f.Type), need("fs_setup", "wipefs")); err != nil {
			return err
		}
	}
	if len(s.Units) > 0 {
		if err := need("systemd.units", "systemctl"); err != nil {
			return err
		}
	}
	if s.NTP != nil {
		if _, err := chooseNTP(h, s.NTP.Client); err != nil {
			return err
		}
	}
	return nil
}
