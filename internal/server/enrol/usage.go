package enrol

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
)

const (
	// usageTimeout bounds the writes of one batch.
	usageTimeout = 30 * time.Second
	// usageAttempts bounds retries after conflicts.
	usageAttempts = 8
)

// errNotUsable is returned for a token that is unknown, expired or used up.
var errNotUsable = errors.New("token is not usable")

// tokenUsage counts the uses of tokens by optimistically locked writes to their Secrets.
// Uses of one token that arrive during a write share the next one: otherwise a thousand
// hosts with one token would conflict a thousand times. The same write records the keys that
// use the token, so that a deleted host is recognized.
type tokenUsage struct {
	client client.Client
	live   client.Reader
	clock  clock.PassiveClock
	// forgot is called when a token had to forget the oldest hosts that have used it.
	forgot func(ctx context.Context, secret *corev1.Secret, hosts int)
	// running counts goroutines that write batches.
	running sync.WaitGroup

	mu sync.Mutex
	// waiting holds the next batch of each token that has a write in progress.
	waiting map[types.NamespacedName][]*use
}

// use is one use of a token that a caller waits for.
type use struct {
	ctx  context.Context // a use whose caller has disconnected is not counted
	hash string
	// fingerprint is that of the key that uses the token.
	fingerprint string
	done        chan error
}

func newTokenUsage(c client.Client, live client.Reader, clk clock.PassiveClock, forgot func(context.Context, *corev1.Secret, int)) *tokenUsage {
	return &tokenUsage{client: c, live: live, clock: clk, forgot: forgot, waiting: map[types.NamespacedName][]*use{}}
}

// add counts one use of the Secret's token by a key and returns when the count is durable.
// It returns errNotUsable if the token does not allow another use.
func (u *tokenUsage) add(ctx context.Context, secret *corev1.Secret, hash, fingerprint string) error {
	key := client.ObjectKeyFromObject(secret)
	added := &use{ctx: ctx, hash: hash, fingerprint: fingerprint, done: make(chan error, 1)}
	u.mu.Lock()
	_, busy := u.waiting[key]
	u.waiting[key] = append(u.waiting[key], added)
	if !busy {
		u.running.Add(1)
		go u.writeBatches(context.WithoutCancel(ctx), secret)
	}
	u.mu.Unlock()
	select {
	case err := <-added.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("using token: %w", ctx.Err())
	}
}

// wait returns when no write is in progress. No use may be added meanwhile.
func (u *tokenUsage) wait() { u.running.Wait() }

// writeBatches writes batches until no use of the token waits.
func (u *tokenUsage) writeBatches(ctx context.Context, secret *corev1.Secret) {
	defer u.running.Done()
	key := client.ObjectKeyFromObject(secret)
	for {
		u.mu.Lock()
		batch := u.waiting[key]
		if len(batch) == 0 {
			delete(u.waiting, key)
			u.mu.Unlock()
			return
		}
		u.waiting[key] = nil
		u.mu.Unlock()
		secret = u.writeBatch(ctx, secret, batch)
	}
}

// writeBatch counts as many uses of a batch as the token allows, in one write. It returns
// the newest state of the Secret.
func (u *tokenUsage) writeBatch(ctx context.Context, secret *corev1.Secret, batch []*use) *corev1.Secret {
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	var granted []*use
	var forgotten int
	after, err := u.update(ctx, secret, func(after *corev1.Secret, t *enrolment.Token) bool {
		granted, forgotten = granted[:0], 0
		for _, w := range batch {
			if w.ctx.Err() == nil && w.hash == t.Hash && t.State(u.clock.Now()) == enrolment.Usable {
				t.Used++
				forgotten += enrolment.RememberKey(after, w.fingerprint)
				granted = append(granted, w)
			}
		}
		return len(granted) > 0
	})
	if err == nil && forgotten > 0 {
		u.forgot(ctx, after, forgotten)
	}
	for _, w := range granted {
		w.done <- err
	}
	for _, w := range batch {
		select {
		case w.done <- errNotUsable:
		default: // granted above
		}
	}
	return after
}

// revert subtracts a use whose host could not be created. It forgets the key, unless forget
// is false: a deleted host stays known.
func (u *tokenUsage) revert(ctx context.Context, secret *corev1.Secret, hash, fingerprint string, forget bool) error {
	// The caller's Secret is older than the use.
	newest := &corev1.Secret{}
	if err := u.live.Get(ctx, client.ObjectKeyFromObject(secret), newest); err != nil {
		return fmt.Errorf("reading token Secret: %w", err)
	}
	_, err := u.update(ctx, newest, func(after *corev1.Secret, t *enrolment.Token) bool {
		if t.Hash != hash || t.Used == 0 {
			return false
		}
		t.Used--
		if forget {
			enrolment.ForgetKey(after, fingerprint)
		}
		return true
	})
	return err
}

// update writes a token if change returns true, which may also change the Secret. It returns
// the newest known state.
func (u *tokenUsage) update(ctx context.Context, secret *corev1.Secret, change func(*corev1.Secret, *enrolment.Token) bool) (*corev1.Secret, error) {
	var malformed error
	newest, err := updateSecret(ctx, u.client, u.live, secret, func(after *corev1.Secret) bool {
		var token enrolment.Token
		if token, malformed = enrolment.ReadToken(after); malformed != nil || !change(after, &token) {
			return false
		}
		token.WriteTo(after)
		if token.State(u.clock.Now()) == enrolment.UsedUp {
			// The plain token is of no more use.
			delete(after.Data, enrolment.ConfigKey)
		}
		return true
	})
	if malformed != nil || apierrors.IsNotFound(err) {
		return newest, errNotUsable
	}
	return newest, err
}

// updateSecret writes a Secret if change returns true. After a conflict it reads the newest
// state, calls change again and writes again. It returns the newest known state.
func updateSecret(ctx context.Context, c client.Client, live client.Reader, secret *corev1.Secret, change func(*corev1.Secret) bool) (*corev1.Secret, error) {
	for range usageAttempts {
		after := secret.DeepCopy()
		if !change(after) {
			return secret, nil
		}
		err := c.Patch(ctx, after, client.MergeFromWithOptions(secret, client.MergeFromWithOptimisticLock{}))
		if err == nil {
			return after, nil
		}
		if apierrors.IsConflict(err) {
			newest := &corev1.Secret{}
			if err = live.Get(ctx, client.ObjectKeyFromObject(secret), newest); err == nil {
				secret = newest
			}
		}
		if err != nil {
			return secret, fmt.Errorf("updating token Secret: %w", err)
		}
	}
	return secret, problem.Busy(time.Second)
}
