// Registers OpenTelemetry's SDK as an operator's own instrumentation does: node --import register-sdk.mjs
import { NodeSDK } from '@opentelemetry/sdk-node';

new NodeSDK({ serviceName: 'registered-before', metricReaders: [], logRecordProcessors: [] }).start();
