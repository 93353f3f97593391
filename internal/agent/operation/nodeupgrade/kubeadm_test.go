package nodeupgrade_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable/durabletest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/staticpods"
)

// run is a run of kubeadm, which survives the agent.
type run struct {
	args []string
	// ended is true once it has ended, with err.
	ended bool
	err   error
}

// kubeadm upgrades as kubeadm does: it moves each manifest away, moves the new one in, waits
// for the component, and makes nothing durable.
type kubeadm struct{ *machine }

func (k kubeadm) Abort(folder string) error {
	if r := k.runs[folder]; r != nil && !r.ended {
		r.ended, r.err = true, errors.New("it was killed")
	}
	return nil
}

func (k kubeadm) Run(ctx context.Context, folder string, args []string, watch func(context.Context)) error {
	if r := k.runs[folder]; r != nil {
		if !r.ended {
			k.t.Error("an attempt that a power cut ended is waited for")
		}
		return r.err
	}
	if err := k.life.Do(func() error { return nil }); err != nil {
		return err
	}
	if k.runs[filepath.Join(filepath.Dir(folder), "kubeadm-3")] != nil {
		k.t.Error("kubeadm runs more than three times")
	}
	happen(k.onKubeadm)
	if k.serverVersion() == "" {
		return errors.New("the API server does not answer")
	}
	r := &run{args: args}
	k.runs[folder] = r
	err := k.refusal
	if err == nil {
		err = k.upgrade(ctx, watch)
	}
	if k.life.Dead && !k.outlives {
		return durabletest.ErrDead
	}
	r.ended, r.err = true, err
	if k.life.Dead {
		return context.Cause(ctx)
	}
	return err
}

// step makes a change of the host. The power may be cut at each one.
func (k kubeadm) step(change func() error) error {
	if k.outlives {
		return change()
	}
	return k.life.Do(change)
}

func (k kubeadm) upgrade(ctx context.Context, watch func(context.Context)) error {
	looks := func() {
		if k.life.Do(func() error { return nil }) == nil {
			watch(ctx)
		}
	}
	if k.role != "Worker" {
		for _, component := range components() {
			if err := k.replace(component); err != nil {
				return err
			}
			looks()
			if k.image(component) == "" {
				k.must(k.clock.Wait(context.WithoutCancel(ctx), 5*time.Minute))
				return errors.Join(fmt.Errorf("%s did not come up", component), k.restore())
			}
		}
	}
	return k.writeLoose("/var/lib/kubelet/config.yaml", kubeletConfig(newVersion))
}

func (k kubeadm) replace(component string) error {
	path := k.path(staticpods.Path(component))
	next := manifest(component, newVersion)
	if k.read(staticpods.Path(component)) == next {
		return nil
	}
	k.expectClients()
	backup := k.path("/etc/kubernetes/tmp/kubeadm-backup-manifests-1")
	if err := os.MkdirAll(backup, 0o700); err != nil {
		return err
	}
	if err := k.step(func() error { return k.disk.Rename(path, filepath.Join(backup, component+".yaml")) }); err != nil {
		return err
	}
	return k.writeLoose(staticpods.Path(component), next)
}

// restore is kubeadm's own way back.
func (k kubeadm) restore() error {
	for _, component := range components() {
		// It puts etcd back only if that is what has failed.
		if component == "etcd" && k.image("etcd") != "" {
			continue
		}
		if k.read(staticpods.Path(component)) == manifest(component, newVersion) {
			if err := k.writeLoose(staticpods.Path(component), manifest(component, oldVersion)); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeLoose writes a file by renaming, and syncs nothing.
func (k kubeadm) writeLoose(name, content string) error {
	temporary := k.path(name) + ".new"
	_ = k.disk.Remove(temporary)
	err := k.step(func() error {
		f, err := k.disk.Create(temporary)
		if err != nil {
			return err
		}
		_, err = f.Write([]byte(content))
		return errors.Join(err, f.Close())
	})
	if err != nil {
		return err
	}
	return k.step(func() error { return k.disk.Rename(temporary, k.path(name)) })
}
