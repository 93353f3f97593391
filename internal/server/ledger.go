package server

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
)

// ledgerTimeout bounds the writes of one batch.
const ledgerTimeout = 30 * time.Second

// errUsedUp tells that a token is not, or no longer, good for an enrolment.
var errUsedUp = errors.New("token is not usable")

// ledger counts the uses of tokens, by compare-and-swap on their Secrets. Uses
// of one token that come while a write is under way share the next one: a
// thousand hosts with one token would else be a thousand conflicts.
type ledger struct {
	client client.Client
	live   client.Reader
	clock  clock.PassiveClock
	// running counts batches.
	running sync.WaitGroup

	mu sync.Mutex
	// waiting holds the uses of the next batch, for tokens with one under way.
	waiting map[types.NamespacedName][]*use
}

// use is one use of a token that somebody waits for.
type use struct {
	ctx  context.Context //nolint:containedctx // a use whose caller went away is not counted
	hash string
	done chan error
}

func newLedger(c client.Client, live client.Reader, clk clock.PassiveClock) *ledger {
	return &ledger{client: c, live: live, clock: clk, waiting: map[types.NamespacedName][]*use{}}
}

// use counts one use of the Secret's token; it returns when that is durable.
// errUsedUp means that the token does not allow it.
func (l *ledger) use(ctx context.Context, secret *corev1.Secret, hash string) error {
	key := client.ObjectKeyFromObject(secret)
	mine := &use{ctx: ctx, hash: hash, done: make(chan error, 1)}
	l.mu.Lock()
	_, busy := l.waiting[key]
	l.waiting[key] = append(l.waiting[key], mine)
	if !busy {
		l.running.Add(1)
		go l.work(context.WithoutCancel(ctx), secret)
	}
	l.mu.Unlock()
	select {
	case err := <-mine.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("using token: %w", ctx.Err())
	}
}

// work writes batches until nobody waits any more.
func (l *ledger) work(ctx context.Context, secret *corev1.Secret) {
	defer l.running.Done()
	key := client.ObjectKeyFromObject(secret)
	for {
		l.mu.Lock()
		batch := l.waiting[key]
		if len(batch) == 0 {
			delete(l.waiting, key)
			l.mu.Unlock()
			return
		}
		l.waiting[key] = nil
		l.mu.Unlock()
		secret = l.grant(ctx, secret, batch)
	}
}

// grant counts the uses of a batch in one write, as many as the token allows. It
// returns the newest state of the Secret.
func (l *ledger) grant(ctx context.Context, secret *corev1.Secret, batch []*use) *corev1.Secret {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	var granted []*use
	after, err := l.change(ctx, secret, func(t *enrolment.Token) bool {
		granted = granted[:0]
		for _, u := range batch {
			if u.ctx.Err() == nil && u.hash == t.Hash && t.State(l.clock.Now()) == enrolment.Usable {
				t.Used++
				granted = append(granted, u)
			}
		}
		return len(granted) > 0
	})
	for _, u := range granted {
		u.done <- err
	}
	for _, u := range batch {
		select {
		case u.done <- errUsedUp:
		default: // it has its answer
		}
	}
	return after
}

// giveBack takes a use back whose host could not be created.
func (l *ledger) giveBack(ctx context.Context, secret *corev1.Secret, hash string) error {
	// What the caller has is from before the use.
	newest := &corev1.Secret{}
	if err := l.live.Get(ctx, client.ObjectKeyFromObject(secret), newest); err != nil {
		return fmt.Errorf("reading token Secret: %w", err)
	}
	_, err := l.change(ctx, newest, func(t *enrolment.Token) bool {
		if t.Hash != hash || t.Used == 0 {
			return false
		}
		t.Used--
		return true
	})
	return err
}

// change writes a token that change has changed, and repeats both with the newest
// state after a conflict.
func (l *ledger) change(ctx context.Context, secret *corev1.Secret, change func(*enrolment.Token) bool) (*corev1.Secret, error) {
	for range updateAttempts {
		token, err := enrolment.ReadToken(secret)
		if err != nil {
			return secret, errUsedUp
		}
		if !change(&token) {
			return secret, nil
		}
		after := secret.DeepCopy()
		token.WriteTo(after)
		if token.State(l.clock.Now()) == enrolment.UsedUp {
			// Nobody needs the plain token any more.
			delete(after.Data, enrolment.ConfigKey)
		}
		err = l.client.Patch(ctx, after, client.MergeFromWithOptions(secret, client.MergeFromWithOptimisticLock{}))
		if err == nil {
			return after, nil
		}
		if apierrors.IsConflict(err) {
			newest := &corev1.Secret{}
			if err = l.live.Get(ctx, client.ObjectKeyFromObject(secret), newest); err == nil {
				secret = newest
			}
		}
		if apierrors.IsNotFound(err) {
			return secret, errUsedUp
		}
		if err != nil {
			return secret, fmt.Errorf("counting token use: %w", err)
		}
	}
	return secret, errBusy(time.Second)
}
