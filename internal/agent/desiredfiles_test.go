package agent_test

import (
	"context"
	"errors"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func withPod() protocol.Desired {
	return protocol.Desired{Endpoint: &protocol.Endpoint{Host: "192.0.2.1", Port: 6443, VIP: true}, Files: []protocol.File{pod}}
}

func TestWritesFilesBeforeTheFirstCommand(t *testing.T) {
	r := newEndpointRig(t)
	r.applier.prepare = func(context.Context) error {
		if len(r.started) > 0 {
			t.Error("a command ran before Prepare")
		}
		return nil
	}
	r.start()
	r.manager.want(bootstrapOf("a"), withPod())
	r.manager.await(t, "the bootstrap succeeded", ended("a", protocol.StateSucceeded))
	if call := <-r.applier.prepared; !samePods(call.files) || !call.endpoint.VIP {
		t.Errorf("prepared %+v", call)
	}
	if call := r.applier.awaitCall(t, "192.0.2.1"); !samePods(call.files) {
		t.Errorf("applied %+v", call)
	}
	if _, err := r.disk.Read("operations/bootstrap-a/beside.json"); err == nil {
		t.Error("beside.json still exists after the bootstrap")
	}
}

func TestBootstrapFailsWithoutItsFiles(t *testing.T) {
	r := newEndpointRig(t)
	r.applier.prepare = func(context.Context) error { return errors.New("not writing /etc/passwd") }
	r.start()
	r.manager.want(bootstrapOf("a"), withPod())
	r.manager.await(t, "the bootstrap failed", ended("a", protocol.StateFailed))
	if report := r.manager.outcome("a"); report.Step != "files" || report.Message != "not writing /etc/passwd" || len(r.scripts) > 0 {
		t.Errorf("reported %+v, ran %v", report, r.scripts)
	}
}

// A started bootstrap keeps its files after its plan was withdrawn. Otherwise kubeadm
// would wait for a VIP without success.
func TestFilesOutliveThePlan(t *testing.T) {
	r := newEndpointRig(t)
	reached := make(chan struct{}, 1)
	r.applier.prepare = func(ctx context.Context) error {
		reached <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	stop := r.start()
	r.manager.want(bootstrapOf("a"), withPod())
	<-reached
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	<-r.applier.prepared
	r.applier.prepare = nil
	r.manager.want(nil, protocol.Desired{})
	r.start()
	r.manager.await(t, "the bootstrap succeeded", ended("a", protocol.StateSucceeded))
	if call := <-r.applier.prepared; !samePods(call.files) {
		t.Errorf("prepared %+v", call)
	}
}

// Files that the agent wrote before a crash do not count as leftovers.
func TestBootstrapWithFilesSurvivesEveryCrash(t *testing.T) {
	everyCrash(t, 18, func(t *testing.T, step int, after bool) {
		r := newEndpointRig(t)
		r.manager.want(bootstrapOf("a"), withPod())
		r.runUntilEnded(t, "a", step, after)
		ran, report := r.scripts["operations/bootstrap-a"], r.manager.outcome("a")
		if (ran != 1 || report.State != protocol.StateSucceeded) && (ran != 0 || report.Step != "runcmd") {
			t.Errorf("the script ran %d times: %+v", ran, report)
		}
		if ran == 1 && len(r.applier.prepared) == 0 {
			t.Error("a command ran without Prepare")
		}
	})
}
