//! The 64 remote functions: names, ids, and which request and response each one has.

use super::messages::*;
use super::struct_pack::{
    Decode, DecodeError, Encode, Form, List, Map, Shape, Wire, decode, encode, md5_head,
};
use super::types::{Expected, SegmentStatus, Uuid};

/// A remote function as a type: what ties its arguments and its answer together.
pub trait Rpc {
    /// The function.
    const FUNCTION: Function;
    /// Its arguments.
    type Request<'a>: Encode + Decode<'a> + std::fmt::Debug + PartialEq;
    /// Its answer.
    type Response<'a>: Encode + Decode<'a> + std::fmt::Debug + PartialEq;
}

/// Something to do with a function whose type is known only at run time. See [`Function::visit`].
pub trait Visitor {
    /// What comes out.
    type Output;
    /// Called with the type of the function.
    fn visit<F: Rpc>(self) -> Self::Output;
}

macro_rules! functions {
    ($($(#[$meta:meta])* $name:ident($request:ty) -> $response:ty;)*) => {
        /// A remote function.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Function { $($(#[$meta])* $name),* }

        impl Function {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The name without its class.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),* }
            }

            /// The name as it is hashed.
            pub const fn full_name(self) -> &'static str {
                match self { $(Self::$name => concat!("mooncake::WrappedMasterService::", stringify!($name))),* }
            }

            /// The number that names the function in a request header.
            #[inline]
            pub const fn id(self) -> u32 {
                match self { $(Self::$name => ids::$name),* }
            }

            /// The function of this id.
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

        /// The ids, computed from the names while compiling.
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

/// Replicas of an object.
type Replicas<'a> = List<'a, ReplicaDescriptor<'a>>;

functions! {
    /// Whether an object is readable; if so it gets a lease.
    ExistKey(KeyRequest<'a>) -> Expected<bool>;
    /// The addresses of clients.
    BatchQueryIp(Vec<Uuid>) -> Expected<Map<Uuid, Vec<&'a [u8]>>>;
    /// Clears replicas of the caller's objects; answers the keys that were cleared.
    BatchReplicaClear(BatchReplicaClearRequest<'a>) -> Expected<Vec<&'a [u8]>>;
    /// The replicas of all objects whose keys match.
    GetReplicaListByRegex(KeyRequest<'a>) -> Expected<Map<&'a [u8], Replicas<'a>>>;
    /// The replicas of an object; it gets a lease.
    GetReplicaList(KeyRequest<'a>) -> Expected<GetReplicaListResponse<'a>>;
    /// The replicas of a batch of objects.
    BatchGetReplicaList(KeysRequest<'a>) -> Vec<Expected<GetReplicaListResponse<'a>>>;
    /// Reserves memory for a new object.
    PutStart(StartRequest<'a>) -> Expected<Replicas<'a>>;
    /// Makes a new object readable.
    PutEnd(EndRequest<'a>) -> Expected<()>;
    /// Gives a write up.
    PutRevoke(RevokeRequest<'a>) -> Expected<()>;
    /// Reserves memory for a batch of new objects.
    BatchPutStart(BatchStartRequest<'a>) -> Vec<Expected<Replicas<'a>>>;
    /// Makes a batch of new objects readable.
    BatchPutEnd(BatchPutEndRequest<'a>) -> Vec<Expected<()>>;
    /// Gives a batch of writes up.
    BatchPutRevoke(BatchPutRevokeRequest<'a>) -> Vec<Expected<()>>;
    /// Reserves memory for a new or existing object.
    UpsertStart(StartRequest<'a>) -> Expected<Replicas<'a>>;
    /// Makes an upserted object readable.
    UpsertEnd(EndRequest<'a>) -> Expected<()>;
    /// Gives an upsert up.
    UpsertRevoke(RevokeRequest<'a>) -> Expected<()>;
    /// Reserves memory for a batch of new or existing objects.
    BatchUpsertStart(BatchStartRequest<'a>) -> Vec<Expected<Replicas<'a>>>;
    /// Makes a batch of upserted objects readable.
    BatchUpsertEnd(BatchUpsertEndRequest<'a>) -> Vec<Expected<()>>;
    /// Gives a batch of upserts up.
    BatchUpsertRevoke(BatchUpsertRevokeRequest<'a>) -> Vec<Expected<()>>;
    /// Removes an object.
    Remove(RemoveRequest<'a>) -> Expected<()>;
    /// Removes all objects whose keys match; answers how many.
    RemoveByRegex(RemoveRequest<'a>) -> Expected<i64>;
    /// Removes all objects; answers how many.
    RemoveAll(RemoveAllRequest<'a>) -> i64;
    /// Removes a batch of objects.
    BatchRemove(BatchRemoveRequest<'a>) -> Vec<Expected<()>>;
    /// Offers memory.
    MountSegment(MountSegmentRequest<'a>) -> Expected<()>;
    /// Offers storage on NVMe over fabrics.
    MountNoFSegment(MountNoFSegmentRequest<'a>) -> Expected<()>;
    /// Offers all memory of a client again.
    ReMountSegment(ReMountSegmentRequest<'a>) -> Expected<()>;
    /// Offers all NVMe storage of a client again.
    ReMountNoFSegment(ReMountNoFSegmentRequest<'a>) -> Expected<()>;
    /// Takes a segment back.
    UnmountSegment(UnmountSegmentRequest) -> Expected<()>;
    /// Takes a segment back after a while.
    GracefulUnmountSegment(GracefulUnmountSegmentRequest) -> Expected<()>;
    /// Takes a segment of NVMe storage back.
    UnmountNoFSegment(UnmountSegmentRequest) -> Expected<()>;
    /// All segments of NVMe storage.
    GetAllNoFSegments(NoArguments) -> Expected<Vec<NoFSegment<'a>>>;
    /// The segments of NVMe storage that have this name, and their owners.
    GetNoFSegmentsByName(&'a [u8]) -> Expected<Vec<NoFSegmentOwnerInfo>>;
    /// Says that a client is alive.
    Ping(Uuid) -> Expected<PingResponse>;
    /// The directory for files.
    GetFsdir(NoArguments) -> Expected<&'a [u8]>;
    /// The state of the segment that has this name.
    QuerySegmentStatus(&'a [u8]) -> Expected<SegmentStatus>;
    /// The state of a segment.
    QuerySegmentStatusById(Uuid) -> Expected<SegmentStatus>;
    /// The settings for files.
    GetStorageConfig(NoArguments) -> Expected<GetStorageConfigResponse<'a>>;
    /// Whether each object of a batch is readable.
    BatchExistKey(KeysRequest<'a>) -> Vec<Expected<bool>>;
    /// The version of the protocol.
    ServiceReady(NoArguments) -> Expected<&'a [u8]>;
    /// Offers a client's disk.
    MountLocalDiskSegment(OffloadRequest) -> Expected<()>;
    /// Takes a client's disk back.
    UnmountLocalDiskSegment(Uuid) -> Expected<()>;
    /// Asks which objects to write to disk.
    OffloadObjectHeartbeat(OffloadRequest) -> Expected<Vec<OffloadTaskItem<'a>>>;
    /// Says how much disk there is.
    ReportSsdCapacity(ReportSsdCapacityRequest) -> Expected<()>;
    /// Says which objects are on disk.
    NotifyOffloadSuccess(NotifyOffloadSuccessRequest<'a>) -> Expected<()>;
    /// Asks which objects to bring back from disk.
    PromotionObjectHeartbeat(Uuid) -> Expected<Vec<PromotionTaskItem<'a>>>;
    /// Reserves memory for an object that comes back from disk.
    PromotionAllocStart(PromotionAllocStartRequest<'a>) -> Expected<PromotionAllocStartResponse<'a>>;
    /// Says that an object is back from disk.
    NotifyPromotionSuccess(ClientKeyRequest<'a>) -> Expected<()>;
    /// Says that an object could not be brought back.
    NotifyPromotionFailure(ClientKeyRequest<'a>) -> Expected<()>;
    /// Starts a copy.
    CopyStart(CopyStartRequest<'a>) -> Expected<CopyStartResponse<'a>>;
    /// Starts a copy that the master asked for by itself.
    DynamicReplicaCopyStart(DynamicReplicaCopyStartRequest<'a>) -> Expected<CopyStartResponse<'a>>;
    /// Ends a copy.
    CopyEnd(ClientKeyRequest<'a>) -> Expected<()>;
    /// Ends a copy that the master asked for by itself.
    DynamicReplicaCopyEnd(DynamicReplicaCopyFinishRequest<'a>) -> Expected<()>;
    /// Gives a copy up.
    CopyRevoke(ClientKeyRequest<'a>) -> Expected<()>;
    /// Gives a copy up that the master asked for by itself.
    DynamicReplicaCopyRevoke(DynamicReplicaCopyFinishRequest<'a>) -> Expected<()>;
    /// Starts a move.
    MoveStart(MoveStartRequest<'a>) -> Expected<MoveStartResponse<'a>>;
    /// Ends a move.
    MoveEnd(ClientKeyRequest<'a>) -> Expected<()>;
    /// Gives a move up.
    MoveRevoke(ClientKeyRequest<'a>) -> Expected<()>;
    /// Says that an object was dropped from disk.
    EvictDiskReplica(EvictDiskReplicaRequest<'a>) -> Expected<()>;
    /// Says that a batch of objects was dropped from disk.
    BatchEvictDiskReplica(BatchEvictDiskReplicaRequest<'a>) -> Vec<Expected<()>>;
    /// Whether a client is to empty its disk.
    PollRemoveAll(Uuid) -> Expected<bool>;
    /// Asks for a copy; answers the task.
    CreateCopyTask(CreateCopyTaskRequest<'a>) -> Expected<Uuid>;
    /// Asks for a move; answers the task.
    CreateMoveTask(CreateMoveTaskRequest<'a>) -> Expected<Uuid>;
    /// How far a task has come.
    QueryTask(Uuid) -> Expected<QueryTaskResponse<'a>>;
    /// Takes tasks to do.
    FetchTasks(FetchTasksRequest) -> Expected<Vec<TaskAssignment<'a>>>;
    /// Says how a task ended.
    MarkTaskToComplete(MarkTaskToCompleteRequest<'a>) -> Expected<()>;
}

impl Function {
    /// The shape of the arguments; none if there are none.
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

    /// The shape of the answer.
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

/// Reads the arguments of a call.
#[inline]
pub fn decode_request<F: Rpc>(body: &[u8]) -> Result<F::Request<'_>, DecodeError> {
    decode(body)
}

/// Appends the answer to a call to `out`, in the short form.
///
/// `response` may be of any type that looks like the function's response on the wire; another one does not compile.
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
