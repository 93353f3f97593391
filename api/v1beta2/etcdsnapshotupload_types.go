package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EtcdSnapshotDestination is where snapshots are uploaded to: a bucket or a folder.
// +kubebuilder:validation:XValidation:rule="has(self.s3) != has(self.folder)",message="a destination is either s3 or folder"
// +kubebuilder:validation:XValidation:rule="!has(self.route) || has(self.s3)",message="route needs s3: hosts write into a folder themselves"
type EtcdSnapshotDestination struct {
	// s3 is a bucket of a storage that has the API of Amazon S3.
	// +optional
	S3 *S3Bucket `json:"s3,omitempty"`

	// folder is a folder on control-plane hosts that a share, such as one of NFS or SMB, or another
	// disk is mounted at.
	// +optional
	Folder *EtcdSnapshotFolder `json:"folder,omitempty"`

	// route is how hosts reach the storage: Direct, the default, or Manager, for sites from which only
	// the manager can be reached. The manager then carries their connections, which are encrypted from
	// end to end, if its flag --snapshot-relay-endpoints names the storage.
	// +optional
	Route EtcdSnapshotRoute `json:"route,omitempty"`
}

// EtcdSnapshotRoute is how hosts reach the storage of snapshots.
// +kubebuilder:validation:Enum=Direct;Manager
type EtcdSnapshotRoute string

// Routes to the storage.
const (
	EtcdSnapshotRouteDirect  EtcdSnapshotRoute = "Direct"
	EtcdSnapshotRouteManager EtcdSnapshotRoute = "Manager"
)

// EtcdSnapshotFolder is a folder on control-plane hosts.
type EtcdSnapshotFolder struct {
	// path is the absolute path of the folder on each control-plane host. Something has to be mounted
	// there, so that nothing is written onto the host's own disk.
	// +required
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^(/[0-9A-Za-z_@+:=\-][0-9A-Za-z._@+:=\-]*)+$`
	Path string `json:"path,omitempty"`
}

// S3Bucket is a bucket of a storage that has the API of Amazon S3. Requests name the bucket
// in the path.
type S3Bucket struct {
	// endpoint is the URL of the storage, without the bucket. Hosts connect to it too, unless route
	// is Manager.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https://[0-9A-Za-z.\-\[\]:]+/?$`
	Endpoint string `json:"endpoint,omitempty"`
	// bucket is the name of the bucket, which has to exist.
	// +required
	// +kubebuilder:validation:Pattern=`^[0-9a-z][0-9a-z.\-]{1,61}[0-9a-z]$`
	Bucket string `json:"bucket,omitempty"`
	// prefix begins the names of all objects, as "PREFIX/". Clusters may share it.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[0-9A-Za-z._\-]+(/[0-9A-Za-z._\-]+)*$`
	Prefix string `json:"prefix,omitempty"`
	// region is what requests are signed for. Defaults to us-east-1, which most storages
	// other than Amazon's accept.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[0-9a-z][0-9a-z\-]*$`
	Region string `json:"region,omitempty"`
	// credentialsRef is a Secret of the cluster's namespace with the keys accessKeyID and
	// secretAccessKey, and with ca.crt if the storage's certificate is not of a public
	// authority. Only the manager reads it; hosts get ca.crt.
	// +required
	CredentialsRef S3CredentialsReference `json:"credentialsRef,omitempty,omitzero"`
}

// S3CredentialsReference names a Secret of the same namespace.
type S3CredentialsReference struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// DefaultS3Region is the region that requests are signed for.
const DefaultS3Region = "us-east-1"

// MaxUploadedEtcdSnapshots bounds UploadedEtcdSnapshots.Items.
const MaxUploadedEtcdSnapshots = 16

// UploadedEtcdSnapshots are the snapshots at the destination.
type UploadedEtcdSnapshots struct {
	// items are the newest snapshots, the newest one first, at most 16.
	// +optional
	// +listType=map
	// +listMapKey=object
	// +kubebuilder:validation:MaxItems=16
	Items []UploadedEtcdSnapshot `json:"items,omitempty"`
	// observedAt is when the list was read from the destination and was another one than before. The list
	// of a folder is what hosts have reported.
	// +required
	ObservedAt metav1.Time `json:"observedAt,omitempty,omitzero"`
}

// UploadedEtcdSnapshot is a snapshot at the destination. It is encrypted, and stays there
// when all hosts are lost.
type UploadedEtcdSnapshot struct {
	// object is the name of the object in the bucket, or the path of the file on the host.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Object string `json:"object,omitempty"`
	// id of the snapshot, which is the time of the schedule.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id,omitempty"`
	// hostName is the ElementalHost that has taken and uploaded it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	HostName string `json:"hostName,omitempty"`
	// uploadedAt is when the upload was complete, by the clock of the storage. For a folder, it is when
	// the host reported it.
	// +optional
	UploadedAt metav1.Time `json:"uploadedAt,omitempty,omitzero"`
	// sizeBytes is the size of the object, in bytes.
	// +optional
	// +kubebuilder:validation:Minimum=1
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// sha256 of the object, in hex, as the host has reported it. It is absent if the report
	// was lost.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	SHA256 string `json:"sha256,omitempty"`
	// snapshotSHA256 is the SHA-256 of the decrypted snapshot, in hex.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	SnapshotSHA256 string `json:"snapshotSHA256,omitempty"`
	// revision of etcd that the snapshot contains at least.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision,omitempty"`
	// kubernetesVersion is the version of the host's API server.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// etcdVersion is the version of the member.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	EtcdVersion string `json:"etcdVersion,omitempty"`
}

// HostEtcdSnapshotUpload is what a host reports of its uploads.
type HostEtcdSnapshotUpload struct {
	// last is the upload that was completed last since the agent's start.
	// +optional
	Last *HostEtcdSnapshotObject `json:"last,omitempty"`
	// failure is why the last attempt of an upload failed.
	// +optional
	Failure *HostEtcdSnapshotFailure `json:"failure,omitempty"`
}

// HostEtcdSnapshotObject is a snapshot that a host says it has uploaded.
type HostEtcdSnapshotObject struct {
	// id of the snapshot.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id,omitempty"`
	// object is its name in the bucket, or the path of the file on the host.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Object string `json:"object,omitempty"`
	// sizeBytes is the size of the object, in bytes.
	// +optional
	// +kubebuilder:validation:Minimum=1
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// sha256 of the object, in hex.
	// +required
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	SHA256 string `json:"sha256,omitempty"`
}

// UploadedEtcdSnapshot returns the snapshot of a host with the ID at the destination, or nil.
func (c *ElementalCluster) UploadedEtcdSnapshot(id, hostName string) *UploadedEtcdSnapshot {
	if c.Status.EtcdSnapshots == nil {
		return nil
	}
	for i := range c.Status.EtcdSnapshots.Items {
		if item := &c.Status.EtcdSnapshots.Items[i]; item.ID == id && item.HostName == hostName {
			return item
		}
	}
	return nil
}
