package etcdrestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/sequence"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/standstill"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/staticpods"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// memberFolder is where etcd has its data, below its data folder. Only this folder is moved:
	// the data folder may be a disk of its own.
	memberFolder = "member"

	preparedPrefix = "restored-"
	asidePrefix    = "member.before-"
)

func isSetAside(name string) bool { return strings.HasPrefix(name, asidePrefix) }

// folders are the folders that a restore moves.
type folders struct {
	// data is the data folder of the member.
	data string
	// name tells the folders of one restore from those of another.
	name string
}

func (s *restore) folders() folders {
	return folders{data: filepath.Join(s.Root, s.at.Member.Data), name: s.name()}
}

// current is the data that etcd uses.
func (f folders) current() string { return filepath.Join(f.data, memberFolder) }

// prepared is the data folder that etcdutl makes.
func (f folders) prepared() string { return filepath.Join(f.data, preparedPrefix+f.name) }

// setAside is where the former data stays.
func (f folders) setAside() string { return filepath.Join(f.data, asidePrefix+f.name) }

func (s *restore) exists(path string) (bool, error) {
	err := s.System.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking at %s: %w", path, err)
	}
	return true, nil
}

// halt ends the control plane. First the manifests go, so that no reboot starts it.
func (s *restore) halt(ctx context.Context) error { return s.standstill().Begin(ctx, s.name()) }

// haltAgain halts for the way back. A rebuilt control plane may be removed already.
func (s *restore) haltAgain(ctx context.Context) error {
	is, err := s.exists(filepath.Join(s.Root, staticpods.Folder))
	if err != nil || !is {
		return err
	}
	return s.halt(ctx)
}

// swap sets the former data aside and puts the new data in its place. Each rename is durable
// before the next one, and what exists tells which one comes next.
func (s *restore) swap(context.Context) error {
	next := filepath.Join(s.folders().prepared(), memberFolder)
	isPrepared, err := s.exists(next)
	if err != nil {
		return err
	}
	isCurrent, err := s.exists(s.folders().current())
	if err != nil {
		return err
	}
	isAside, err := s.exists(s.folders().setAside())
	switch {
	case err != nil:
		return err
	case !isPrepared && isCurrent && isAside == s.at.HadData:
		return nil // it is done
	case !isPrepared:
		return fmt.Errorf("the restored data is not in %s: has somebody removed it?", next)
	case isCurrent && isAside:
		return fmt.Errorf("%s is there, although etcd does not run: has somebody started it?", s.folders().current())
	case isCurrent:
		if err := move(s.System, s.folders().current(), s.folders().setAside()); err != nil {
			return err
		}
	}
	return move(s.System, next, s.folders().current())
}

// move renames a folder and makes that durable.
func move(system durable.System, from, to string) error {
	if err := system.Rename(from, to); err != nil {
		return fmt.Errorf("moving the data of etcd: %w", err)
	}
	if err := system.SyncDir(filepath.Dir(from)); err != nil {
		return err
	}
	return system.SyncDir(filepath.Dir(to))
}

// start gives the manifests back to the kubelet and starts it.
func (s *restore) start(ctx context.Context) error { return s.standstill().End(ctx, s.name()) }

func (s *restore) standstill() standstill.Standstill {
	return standstill.Standstill{Checkpoints: s.checkpoints(), ControlPlane: s.ControlPlane}
}

// goBack is the step rollback: the former data comes back to its place. Without former data
// the new one stays, because an etcd without data would begin an empty cluster.
func (s *restore) goBack(ctx context.Context) error {
	if err := s.haltAgain(ctx); err != nil {
		return err
	}
	isAside, err := s.exists(s.folders().setAside())
	if err != nil {
		return err
	}
	if isAside || s.want.Rebuild && !s.at.HadData {
		if err := s.System.RemoveAll(s.folders().current()); err != nil {
			return fmt.Errorf("removing the new data: %w", err)
		}
	}
	if isAside {
		if err := move(s.System, s.folders().setAside(), s.folders().current()); err != nil {
			return err
		}
	}
	if err := s.System.RemoveAll(s.folders().prepared()); err != nil {
		return fmt.Errorf("removing the restored data: %w", err)
	}
	if s.want.Rebuild {
		return rebuild{s}.undo(ctx) // there was no control plane to start
	}
	isCurrent, err := s.exists(s.folders().current())
	if err != nil {
		return err
	}
	if !isCurrent {
		return errors.New("etcd has no data, and would begin an empty cluster: it is not started")
	}
	return s.start(ctx)
}

// judge judges the control plane after the way back. One that was not well before need not be.
func (s *restore) judge(ctx context.Context) (*operation.Result, error) {
	if s.want.Rebuild {
		return failed(s.at.FailedStep, protocol.RestoreRolledBack, "the host is as before, without a control plane; "+s.at.Cause), nil
	}
	if !s.at.HadData {
		return s.broken("there is no former data to go back to"), nil
	}
	if !s.at.WasReady {
		return failed(s.at.FailedStep, protocol.RestoreRolledBack, "the control plane is as before, not well; "+s.at.Cause), nil
	}
	err := s.await(ctx)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("going back: %w", context.Cause(ctx))
	}
	if err != nil {
		return s.broken("after the way back: " + sequence.Short(err)), nil
	}
	return failed(s.at.FailedStep, protocol.RestoreRolledBack, "the control plane serves its former data; "+s.at.Cause), nil
}

// broken is the result of a way back that failed.
func (s *restore) broken(found string) *operation.Result {
	return failed(s.at.FailedStep, protocol.RestoreLeftBroken,
		fmt.Sprintf("%s; the manifests are in %s; %s", found, filepath.Join(s.Checkpoints, s.name()), s.at.Cause))
}
