package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/etcd"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/staticpods"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// attemptTimeout bounds one attempt. The manager asks another host after 15 minutes.
	attemptTimeout = 10 * time.Minute
	// majorityTimeout is longer than etcd itself waits for a majority.
	majorityTimeout = 30 * time.Second
	// reserveShare is the part of the disk that a snapshot leaves free: one of so many. Below
	// 15 %, the kubelet begins to remove images, and below 10 % Pods.
	reserveShare = 5
	// harmlessShare is the part of the free space that a snapshot may take in any case: one of so
	// many. It is too little to matter, and a fifth of a large disk is more than many disks have.
	harmlessShare = 100
)

var (
	idPattern = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z-]{0,62}$`)

	errNoMember = errors.New("this host has no member of etcd that kubeadm has set up: snapshots need a control plane of kubeadm with etcd on its hosts")
)

// Take takes a snapshot of etcd and makes it durable, unless the host has it, then removes
// old ones. A failure leaves all former snapshots as they are.
func (s *Store) Take(ctx context.Context, want protocol.EtcdSnapshot) error {
	if !idPattern.MatchString(want.ID) || want.Keep < 1 || want.Keep > protocol.MaxEtcdSnapshots {
		return fmt.Errorf("%.64q is no ID of a snapshot, or %d is no number of snapshots to keep", want.ID, want.Keep)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, attemptTimeout, fmt.Errorf("it was not complete within %s", attemptTimeout))
	defer cancel()
	member, found, err := etcd.Local(s.Root)
	if err != nil {
		return err
	}
	folder, hasAuthority, err := s.folder()
	if err != nil {
		return err
	}
	if !found || !hasAuthority {
		return errNoMember
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.check(ctx, folder, want.ID); err != nil {
		if err := s.take(ctx, member, folder, want); err != nil {
			return err
		}
	}
	return s.keepNewest(ctx, folder, want.ID, int(want.Keep))
}

func (s *Store) take(ctx context.Context, member etcd.Member, folder string, want protocol.EtcdSnapshot) error {
	if err := s.mkdir(folder); err != nil {
		return fmt.Errorf("making the folder of snapshots: %w", err)
	}
	if err := s.clear(ctx, folder, want.ID); err != nil {
		return err
	}
	size, err := member.DatabaseSize(s.Root)
	if err != nil {
		return err
	}
	limit, err := s.limit(size, folder)
	if err != nil {
		return err
	}
	facts := protocol.EtcdSnapshotFacts{ID: want.ID, Cluster: want.Cluster, KubernetesVersion: kubernetesVersion(s.Root)}
	if facts.EtcdVersion, err = etcd.Version(ctx, member.Options); err != nil {
		return err
	}
	// What was written before has come to this member once it knows that a majority agrees with it.
	began := s.Now().UTC().Truncate(time.Second)
	if err := agrees(ctx, member.Options); err != nil {
		return err
	}
	if facts.Revision, err = etcd.Revision(ctx, member.Options); err != nil {
		s.Log.Info("The revision of a snapshot of etcd is unknown", "snapshot", want.ID, "error", err)
	}
	path := filepath.Join(folder, want.ID+databaseSuffix)
	info, err := etcd.SaveFile(ctx, member.Options, s.System, path, limit)
	if errors.Is(err, etcd.ErrTooLarge) {
		return fmt.Errorf("%w: it would leave less than a %dth of the disk of %s free: make room", err, reserveShare, s.Folder)
	}
	if err != nil {
		return err
	}
	facts.SizeBytes, facts.SHA256, facts.CompletedAt = info.Bytes, info.FileSHA256, began
	if err := s.complete(path, facts); err != nil {
		return err
	}
	if file, err := os.Lstat(path); err == nil {
		s.trust(path, version{file.Size(), file.ModTime(), facts.SHA256})
	}
	s.Log.Info("Took a snapshot of etcd", "snapshot", want.ID, "bytes", facts.SizeBytes, "revision", facts.Revision, "sha256", facts.SHA256)
	return nil
}

// agrees returns an error unless a majority of the members agrees with this one. Without it, a member has what was
// there when the others were lost, and streams that like a current snapshot.
func agrees(ctx context.Context, o etcd.Options) error {
	ctx, cancel := context.WithTimeoutCause(ctx, majorityTimeout, fmt.Errorf("there was no answer within %s", majorityTimeout))
	defer cancel()
	if _, err := etcd.Members(ctx, o); err != nil {
		return fmt.Errorf("%w: this member may lack the newest data, because no majority of the members has answered it: look at the connections between the control-plane hosts", err)
	}
	return nil
}

// clear removes the files of a snapshot, and of snapshots that are not complete.
func (s *Store) clear(ctx context.Context, folder, id string) error {
	isOfThis := func(name string) bool { return idOf(name) == id }
	return errors.Join(s.remove(ctx, folder, isOfThis), s.removePartial(ctx, folder))
}

// limit returns how large a snapshot may become, in bytes, or an error if that is less than
// size.
func (s *Store) limit(size int64, folder string) (int64, error) {
	free, total, err := s.Space(folder)
	if err != nil {
		return 0, err
	}
	for _, content := range s.incoming {
		free = max(free-content.left.Load(), 0)
	}
	limit := max(free-total/reserveShare, free/harmlessShare)
	if limit < size {
		return 0, fmt.Errorf("the disk lacks space: %s has %d MiB free, and %d MiB have to stay free beside the snapshot of %d MiB, which is more than a %dth of the free space: make room, or keep fewer snapshots",
			s.Folder, free>>20, (total/reserveShare)>>20, size>>20, harmlessShare)
	}
	return limit, nil
}

// kubernetesVersion returns the version of the host's API server; blank if its manifest does
// not tell.
func kubernetesVersion(root string) string {
	data, err := os.ReadFile(filepath.Join(root, staticpods.Path(staticpods.Server)))
	if err != nil {
		return ""
	}
	image, err := staticpods.Parse(data)
	if err != nil {
		return ""
	}
	image, _, _ = strings.Cut(image, "@")
	_, tag, _ := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], ":")
	return tag
}

// mkdir makes a directory and those above it, durably.
func (s *Store) mkdir(path string) error {
	if err := s.System.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := s.mkdir(filepath.Dir(path)); err != nil {
		return err
	}
	if err := s.System.Mkdir(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return s.System.SyncDir(filepath.Dir(path))
}
