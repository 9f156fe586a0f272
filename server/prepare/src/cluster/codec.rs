//! The codec of plans to and from a cluster: Ballista's, the node of a fit's pass, and the functions of expressions.

use std::sync::Arc;

use ballista_core::serde::BallistaPhysicalExtensionCodec;
use datafusion::{
    error::DataFusionError, execution::TaskContext, logical_expr::ScalarUDF, physical_plan::ExecutionPlan,
};
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use forebay_expr::{decode_function, encode_function};
use forebay_stream::FitWorker;

use super::pass::PassExec;

/// Begins the bytes of a pass. No protobuf message begins with it.
const PASS: &[u8] = b"forebay pass\n";

/// Begins the bytes of a function of the server's expressions.
const FUNCTION: &[u8] = b"forebay function\n";

/// The codec of a cluster's programs and clients.
#[derive(Debug, Default)]
pub(super) struct Codec {
    ballista: BallistaPhysicalExtensionCodec,
    /// Computes passes, on executors.
    worker: Option<Arc<FitWorker>>,
}

// === impl Codec ===

impl Codec {
    /// The codec of an executor.
    pub(super) fn of_executor(worker: FitWorker) -> Self {
        Self { worker: Some(Arc::new(worker)), ..Self::default() }
    }
}

impl PhysicalExtensionCodec for Codec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        match (bytes.strip_prefix(PASS), inputs) {
            (Some(message), [input]) => {
                Ok(Arc::new(PassExec::new(message.into(), Arc::clone(input), self.worker.clone())))
            }
            (Some(_), _) => Err(DataFusionError::Internal("a pass has one input".to_owned())),
            (None, _) => self.ballista.try_decode(bytes, inputs, context, converter),
        }
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<(), DataFusionError> {
        let Some(pass) = node.downcast_ref::<PassExec>() else {
            return self.ballista.try_encode(node, bytes, converter);
        };
        bytes.extend_from_slice(PASS);
        bytes.extend_from_slice(pass.message());
        Ok(())
    }

    fn try_decode_udf(&self, name: &str, bytes: &[u8]) -> Result<Arc<ScalarUDF>, DataFusionError> {
        let function = bytes.strip_prefix(FUNCTION).and_then(|text| decode_function(std::str::from_utf8(text).ok()?));
        function.map_or_else(|| self.ballista.try_decode_udf(name, bytes), Ok)
    }

    fn try_encode_udf(&self, function: &ScalarUDF, bytes: &mut Vec<u8>) -> Result<(), DataFusionError> {
        let Some(text) = encode_function(function) else { return self.ballista.try_encode_udf(function, bytes) };
        bytes.extend_from_slice(FUNCTION);
        bytes.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
