//! The 64 remote functions: names, ids, and the request and response of each one.

use super::messages::*;
use super::struct_pack::{
    Decode, DecodeError, Encode, Form, List, Map, Shape, Wire, decode, encode, md5_head,
};
use super::types::{Expected, SegmentStatus, Uuid};

/// A remote function as a type, which ties its arguments to its response.
pub trait Rpc {
    /// The function as a value, for its name and id.
    const FUNCTION: Function;
    /// The arguments; several are encoded as a tuple.
    type Request<'a>: Encode + Decode<'a> + std::fmt::Debug + PartialEq;
    /// Type of the response.
    type Response<'a>: Encode + Decode<'a> + std::fmt::Debug + PartialEq;
}

/// A generic operation on a function whose type is known only at run time. See [`Function::visit`].
pub trait Visitor {
    /// Result of the operation, of the same type for every function.
    type Output;
    /// Called with the type of the function.
    fn visit<F: Rpc>(self) -> Self::Output;
}

macro_rules! functions {
    ($($(#[$meta:meta])* $name:ident($request:ty) -> $response:ty;)*) => {
        /// One of the remote functions that clients call.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Function { $($(#[$meta])* $name),* }

        impl Function {
            /// All functions, in the order of the enum's variants.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Returns the name without its class.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),* }
            }

            /// Returns the name whose hash is the id.
            pub const fn full_name(self) -> &'static str {
                match self { $(Self::$name => concat!("mooncake::WrappedMasterService::", stringify!($name))),* }
            }

            /// Returns the id of the function in a request header.
            #[inline]
            pub const fn id(self) -> u32 {
                match self { $(Self::$name => ids::$name),* }
            }

            /// Returns the function with this id.
            #[inline]
            pub const fn from_id(id: u32) -> Option<Self> {
                match id {
                    $(ids::$name => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Calls the visitor with the type of this function.
            #[inline]
            pub fn visit<V: Visitor>(self, visitor: V) -> V::Output {
                match self { $(Self::$name => visitor.visit::<rpc::$name>()),* }
            }
        }

        /// The ids, computed from the names at compile time.
        #[expect(non_upper_case_globals, reason = "the constants are called like the functions")]
        mod ids {
            use super::{Function, md5_head};
            $(pub const $name: u32 = md5_head(Function::$name.full_name().as_bytes());)*
        }

        /// One type for each function, for typed calls and handlers.
        pub mod rpc {
            use super::*;
            $(
                $(#[$meta])*
                #[derive(Debug, Clone, Copy, PartialEq, Eq)]
                pub struct $name;

                impl Rpc for $name {
                    const FUNCTION: Function = Function::$name;
                    type Request<'a> = $request;
                    type Response<'a> = $response;
                }
            )*
        }
    };
}

/// The replicas of one object in a response.
type Replicas<'a> = List<'a, ReplicaDescriptor<'a>>;

functions! {
    /// Returns whether an object is readable; if so it gets a lease.
    ExistKey(KeyRequest<'a>) -> Expected<bool>;
    /// Returns the addresses of clients.
    BatchQueryIp(Vec<Uuid>) -> Expected<Map<Uuid, Vec<&'a [u8]>>>;
    /// Clears replicas of the caller's objects; returns the keys that were cleared.
    BatchReplicaClear(BatchReplicaClearRequest<'a>) -> Expected<Vec<&'a [u8]>>;
    /// Returns the replicas of all objects whose keys match.
    GetReplicaListByRegex(KeyRequest<'a>) -> Expected<Map<&'a [u8], Replicas<'a>>>;
    /// Returns the replicas of an object, which gets a lease.
    GetReplicaList(KeyRequest<'a>) -> Expected<GetReplicaListResponse<'a>>;
    /// Returns the replicas of a batch of objects.
    BatchGetReplicaList(KeysRequest<'a>) -> Vec<Expected<GetReplicaListResponse<'a>>>;
    /// Reserves memory for a new object.
    PutStart(StartRequest<'a>) -> Expected<Replicas<'a>>;
    /// Makes a new object readable.
    PutEnd(EndRequest<'a>) -> Expected<()>;
    /// Aborts a write and frees its memory.
    PutRevoke(RevokeRequest<'a>) -> Expected<()>;
    /// Reserves memory for a batch of new objects.
    BatchPutStart(BatchStartRequest<'a>) -> Vec<Expected<Replicas<'a>>>;
    /// Makes a batch of new objects readable.
    BatchPutEnd(BatchPutEndRequest<'a>) -> Vec<Expected<()>>;
    /// Aborts a batch of writes.
    BatchPutRevoke(BatchPutRevokeRequest<'a>) -> Vec<Expected<()>>;
    /// Reserves memory for a new or existing object.
    UpsertStart(StartRequest<'a>) -> Expected<Replicas<'a>>;
    /// Makes an upserted object readable.
    UpsertEnd(EndRequest<'a>) -> Expected<()>;
    /// Aborts an upsert and removes the object.
    UpsertRevoke(RevokeRequest<'a>) -> Expected<()>;
    /// Reserves memory for a batch of new or existing objects.
    BatchUpsertStart(BatchStartRequest<'a>) -> Vec<Expected<Replicas<'a>>>;
    /// Makes a batch of upserted objects readable.
    BatchUpsertEnd(BatchUpsertEndRequest<'a>) -> Vec<Expected<()>>;
    /// Aborts a batch of upserts.
    BatchUpsertRevoke(BatchUpsertRevokeRequest<'a>) -> Vec<Expected<()>>;
    /// Removes an object; one with a lease only if forced.
    Remove(RemoveRequest<'a>) -> Expected<()>;
    /// Removes all objects whose keys match; returns how many.
    RemoveByRegex(RemoveRequest<'a>) -> Expected<i64>;
    /// Removes all objects; returns how many.
    RemoveAll(RemoveAllRequest<'a>) -> i64;
    /// Removes a batch of objects.
    BatchRemove(BatchRemoveRequest<'a>) -> Vec<Expected<()>>;
    /// Mounts a segment of memory.
    MountSegment(MountSegmentRequest<'a>) -> Expected<()>;
    /// Mounts a segment on NVMe over fabrics.
    MountNoFSegment(MountNoFSegmentRequest<'a>) -> Expected<()>;
    /// Mounts all segments of a client again.
    ReMountSegment(ReMountSegmentRequest<'a>) -> Expected<()>;
    /// Mounts all NVMe segments of a client again.
    ReMountNoFSegment(ReMountNoFSegmentRequest<'a>) -> Expected<()>;
    /// Unmounts a segment; the replicas in it are lost.
    UnmountSegment(UnmountSegmentRequest) -> Expected<()>;
    /// Unmounts a segment after a grace period.
    GracefulUnmountSegment(GracefulUnmountSegmentRequest) -> Expected<()>;
    /// Unmounts an NVMe segment; refused, as this master has none.
    UnmountNoFSegment(UnmountSegmentRequest) -> Expected<()>;
    /// Returns all NVMe segments; this master has none.
    GetAllNoFSegments(NoArguments) -> Expected<Vec<NoFSegment<'a>>>;
    /// Returns the NVMe segments that have this name, and their owners.
    GetNoFSegmentsByName(&'a [u8]) -> Expected<Vec<NoFSegmentOwnerInfo>>;
    /// Reports that a client is alive.
    Ping(Uuid) -> Expected<PingResponse>;
    /// Returns the directory for files.
    GetFsdir(NoArguments) -> Expected<&'a [u8]>;
    /// Returns the state of the segment that has this name.
    QuerySegmentStatus(&'a [u8]) -> Expected<SegmentStatus>;
    /// Returns the state of the segment with this id.
    QuerySegmentStatusById(Uuid) -> Expected<SegmentStatus>;
    /// Returns the settings for files.
    GetStorageConfig(NoArguments) -> Expected<GetStorageConfigResponse<'a>>;
    /// Returns whether each object of a batch is readable.
    BatchExistKey(KeysRequest<'a>) -> Vec<Expected<bool>>;
    /// Returns the version of the protocol.
    ServiceReady(NoArguments) -> Expected<&'a [u8]>;
    /// Mounts a client's disk.
    MountLocalDiskSegment(OffloadRequest) -> Expected<()>;
    /// Unmounts a client's disk.
    UnmountLocalDiskSegment(Uuid) -> Expected<()>;
    /// Fetches the objects that a client is to write to its disk.
    OffloadObjectHeartbeat(OffloadRequest) -> Expected<Vec<OffloadTaskItem<'a>>>;
    /// Reports the capacity of a client's disk.
    ReportSsdCapacity(ReportSsdCapacityRequest) -> Expected<()>;
    /// Reports objects that were written to disk.
    NotifyOffloadSuccess(NotifyOffloadSuccessRequest<'a>) -> Expected<()>;
    /// Fetches the objects that a client is to bring back from disk.
    PromotionObjectHeartbeat(Uuid) -> Expected<Vec<PromotionTaskItem<'a>>>;
    /// Reserves memory for an object that comes back from disk.
    PromotionAllocStart(PromotionAllocStartRequest<'a>) -> Expected<PromotionAllocStartResponse<'a>>;
    /// Reports that an object is back from disk.
    NotifyPromotionSuccess(ClientKeyRequest<'a>) -> Expected<()>;
    /// Reports that an object could not be brought back.
    NotifyPromotionFailure(ClientKeyRequest<'a>) -> Expected<()>;
    /// Starts a copy of an object to other segments.
    CopyStart(CopyStartRequest<'a>) -> Expected<CopyStartResponse<'a>>;
    /// Starts a copy that the master requested by itself.
    DynamicReplicaCopyStart(DynamicReplicaCopyStartRequest<'a>) -> Expected<CopyStartResponse<'a>>;
    /// Ends a copy: its targets become readable.
    CopyEnd(ClientKeyRequest<'a>) -> Expected<()>;
    /// Ends a copy that the master requested by itself.
    DynamicReplicaCopyEnd(DynamicReplicaCopyFinishRequest<'a>) -> Expected<()>;
    /// Aborts a copy and frees its targets.
    CopyRevoke(ClientKeyRequest<'a>) -> Expected<()>;
    /// Aborts a copy that the master requested by itself.
    DynamicReplicaCopyRevoke(DynamicReplicaCopyFinishRequest<'a>) -> Expected<()>;
    /// Starts a move of a replica to another segment.
    MoveStart(MoveStartRequest<'a>) -> Expected<MoveStartResponse<'a>>;
    /// Ends a move: the target replaces the source.
    MoveEnd(ClientKeyRequest<'a>) -> Expected<()>;
    /// Aborts a move and frees its target.
    MoveRevoke(ClientKeyRequest<'a>) -> Expected<()>;
    /// Reports that a client has evicted an object from disk.
    EvictDiskReplica(EvictDiskReplicaRequest<'a>) -> Expected<()>;
    /// Reports that a client has evicted a batch of objects from disk.
    BatchEvictDiskReplica(BatchEvictDiskReplicaRequest<'a>) -> Vec<Expected<()>>;
    /// Returns whether a client is to empty its disk.
    PollRemoveAll(Uuid) -> Expected<bool>;
    /// Creates a copy task; returns its id.
    CreateCopyTask(CreateCopyTaskRequest<'a>) -> Expected<Uuid>;
    /// Creates a move task; returns its id.
    CreateMoveTask(CreateMoveTaskRequest<'a>) -> Expected<Uuid>;
    /// Returns the state of a task.
    QueryTask(Uuid) -> Expected<QueryTaskResponse<'a>>;
    /// Fetches tasks to carry out.
    FetchTasks(FetchTasksRequest) -> Expected<Vec<TaskAssignment<'a>>>;
    /// Reports how a task ended.
    MarkTaskToComplete(MarkTaskToCompleteRequest<'a>) -> Expected<()>;
}

impl Function {
    /// Returns the shape of the arguments; `None` if the function has none.
    pub fn request_shape(self) -> Option<&'static Shape> {
        struct RequestShape;
        impl Visitor for RequestShape {
            type Output = &'static Shape;
            fn visit<F: Rpc>(self) -> &'static Shape {
                F::Request::SHAPE
            }
        }
        let shape = self.visit(RequestShape);
        (!shape.literal.as_bytes().is_empty()).then_some(shape)
    }

    /// Returns the shape of the response.
    pub fn response_shape(self) -> &'static Shape {
        struct ResponseShape;
        impl Visitor for ResponseShape {
            type Output = &'static Shape;
            fn visit<F: Rpc>(self) -> &'static Shape {
                F::Response::SHAPE
            }
        }
        self.visit(ResponseShape)
    }
}

/// Decodes the arguments of a call.
#[inline]
pub fn decode_request<F: Rpc>(body: &[u8]) -> Result<F::Request<'_>, DecodeError> {
    decode(body)
}

/// Appends the response to a call to `out`, in the short form.
///
/// `response` may be of any type with the wire format of the function's response; another one does not compile.
#[inline]
pub fn encode_response<F: Rpc, R: Encode>(response: &R, out: &mut Vec<u8>) {
    const {
        assert!(
            R::SHAPE.code == <F::Response<'static> as Wire>::SHAPE.code,
            "not the response of the function"
        )
    }
    encode(response, Form::Short, out);
}
