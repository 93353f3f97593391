package change

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

// Plan is a change of one object that has not been made yet.
type Plan struct {
	// Subject is the object, such as ElementalHost sites/h1, and Name is its name.
	Subject, Name string
	// Action says what is to be done, and Effects what follows.
	Action  string
	Effects []string
	// IsDone reports that the object is as desired already, so that nothing is written.
	IsDone bool
	// IsDestructive reports that a person has to confirm the change.
	IsDestructive bool

	write  func(ctx context.Context, c client.Client, dryRun bool) error
	result func(now time.Time) string
}

// Refusal says why a change is not made, and what a person can do.
type Refusal struct {
	Subject, Reason, Remedy string
}

// Error returns the reason and the remedy.
func (r *Refusal) Error() string {
	return fmt.Sprintf("%s: %s. %s", r.Subject, r.Reason, r.Remedy)
}

// Apply makes the change, unless the object has changed since the plan was made. With dryRun
// the API server checks the change, and does not store it.
func (p *Plan) Apply(ctx context.Context, c client.Client, dryRun bool) error {
	if p.IsDone {
		return nil
	}
	err := p.write(ctx, c, dryRun)
	switch {
	case apierrors.IsConflict(err):
		return fmt.Errorf("%s has changed since this command looked at it, so nothing was done: look at it, and repeat the command", p.Subject)
	case err != nil:
		return fmt.Errorf("changing %s: %w", p.Subject, err)
	}
	return nil
}

// Result says how the object is now.
func (p *Plan) Result(now time.Time) string { return p.result(now) }

// copied is an object with a typed copy.
type copied[T any] interface {
	client.Object
	DeepCopy() T
}

// Patch plans to change an object by a patch. result says how the object is afterwards.
func Patch[T copied[T]](kind string, before T, action string, change func(T), result func(T, time.Time) string) *Plan {
	changed := before.DeepCopy()
	change(changed)
	return &Plan{
		Subject: subject(kind, before), Name: before.GetName(), Action: action,
		write: func(ctx context.Context, c client.Client, dryRun bool) error {
			var options []client.PatchOption
			if dryRun {
				options = append(options, client.DryRunAll)
			}
			return c.Patch(ctx, changed, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), options...)
		},
		result: func(now time.Time) string { return result(changed, now) },
	}
}

// Delete plans to delete an object. result says what happens next.
func Delete(kind string, object client.Object, action, result string) *Plan {
	return &Plan{
		Subject: subject(kind, object), Name: object.GetName(), Action: action, IsDestructive: true,
		write: func(ctx context.Context, c client.Client, dryRun bool) error {
			uid, version := object.GetUID(), object.GetResourceVersion()
			options := []client.DeleteOption{client.Preconditions{UID: &uid, ResourceVersion: &version}}
			if dryRun {
				options = append(options, client.DryRunAll)
			}
			return c.Delete(ctx, object, options...)
		},
		result: func(time.Time) string { return result },
	}
}

func subject(kind string, object client.Object) string {
	return fmt.Sprintf("%s %s/%s", kind, object.GetNamespace(), object.GetName())
}

// patchHost plans to change a host.
func patchHost(host *infrav1.ElementalHost, action string, change func(*infrav1.ElementalHost)) *Plan {
	return Patch("ElementalHost", host, action, change, stateOf)
}

// done is the plan for a host that is as desired already.
func done(host *infrav1.ElementalHost, action string) *Plan {
	p := patchHost(host, action, func(*infrav1.ElementalHost) {})
	p.IsDone = true
	return p
}

// refuse returns the refusal of a change of a host.
func refuse(host *infrav1.ElementalHost, reason, remedy string) error {
	return &Refusal{Subject: subject("ElementalHost", host), Reason: reason, Remedy: remedy}
}

// stateOf returns the state that the manager derives from the host as it is now.
func stateOf(host *infrav1.ElementalHost, now time.Time) string {
	host = host.DeepCopy()
	hoststatus.Update(host, metav1.NewTime(now))
	ready := meta.FindStatusCondition(host.Status.Conditions, infrav1.ReadyCondition)
	if ready == nil {
		return "its state is unknown"
	}
	state := "its state is " + ready.Reason
	if ready.Message != "" {
		state += ": " + ready.Message
	}
	if host.Spec.Cordon != nil && ready.Reason != infrav1.CordonedReason {
		state += "; it is cordoned"
	}
	return state
}
